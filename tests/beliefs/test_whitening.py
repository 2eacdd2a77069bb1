"""Principal axes: against numpy's, in blocks, and where there is nothing to find."""

import numpy as np

from truepair.beliefs import whitening
from truepair.beliefs.whitening import Axes, unit


def made(n=200, d=6):
    generator = np.random.default_rng(0)
    return (generator.normal(size=(n, d)) * np.arange(1, d + 1) + 5).astype(np.float32)


def test_coordinates_are_uncorrelated_with_the_spread_that_is_told():
    vectors = made()
    axes = Axes.of([vectors], [vectors])
    coordinates = axes(vectors).astype(np.float64)
    covariance = np.cov(coordinates.T, bias=True)
    np.testing.assert_allclose(covariance, np.diag(axes.spread), atol=1e-4)
    np.testing.assert_allclose(axes.spread.mean(), 1, rtol=1e-6)
    assert (np.diff(axes.spread) <= 1e-9).all()
    directed = unit(vectors - vectors.mean(0))
    expected = np.linalg.eigvalsh(np.cov(directed.T, bias=True))[::-1]
    np.testing.assert_allclose(axes.spread, expected / expected.mean(), rtol=1e-3)


def test_blocks_equal_the_whole_and_directions_are_composed():
    vectors = made()
    whole = Axes.of([vectors], [vectors])
    blocks = [vectors[:70], vectors[70:71], vectors[71:]]
    np.testing.assert_allclose(Axes.of(blocks, blocks).spread, whole.spread, rtol=1e-4)
    directions = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
    np.testing.assert_allclose(whole(vectors, directions), whole(vectors) @ directions, atol=1e-4)


def test_only_the_widest_axes_are_kept(monkeypatch):
    monkeypatch.setattr(whitening, "WIDTH", 2)
    assert Axes.of([made()], [made()])(made()).shape == (200, 2)


def test_vectors_that_are_all_alike_have_no_coordinates():
    same = np.ones((30, 4), np.float32)
    assert np.all(np.isfinite(Axes.of([same], [same])(same)))
    assert np.all(unit(np.zeros((2, 3))) == 0)
