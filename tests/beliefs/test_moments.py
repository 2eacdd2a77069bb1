"""Sums of outer products against numpy's own statistics, whole and in blocks."""

from functools import reduce
from operator import add

import numpy as np

from truepair.beliefs.moments import CrossMoments, Moments


def test_mean_and_covariance_of_blocks_are_those_of_the_whole():
    vectors = np.random.default_rng(0).normal(3, 2, (100, 5))
    blocks = [Moments.of(vectors[start : start + 13]) for start in range(0, 100, 13)]
    for found in (Moments.of(vectors), reduce(add, blocks), reduce(add, blocks[::-1])):
        assert found.count == 100
        np.testing.assert_allclose(found.mean, vectors.mean(0))
        np.testing.assert_allclose(found.covariance, np.cov(vectors.T, bias=True))


def test_cross_moments_against_loops():
    generator = np.random.default_rng(1)
    images, texts, weights = (
        generator.normal(size=(40, 3)),
        generator.normal(size=(40, 4)),
        generator.random(40),
    )
    loops = sum(w * np.outer(i, t) for i, t, w in zip(images, texts, weights, strict=True)) / sum(weights)
    halves = [CrossMoments.of(images[s], texts[s], weights[s]) for s in (slice(0, 17), slice(17, 40))]
    np.testing.assert_allclose(CrossMoments.of(images, texts, weights).mean, loops)
    np.testing.assert_allclose((halves[0] + halves[1]).mean, loops)
    assert np.all(CrossMoments.of(images, texts, 0 * weights).mean == 0)
