"""Canonical correlation and agreement, written out as loops and as the textbook's eigenvalue problem."""

import numpy as np
import pytest
from scipy.linalg import eigh

from truepair.beliefs.canonical import Agreement, Canonical
from truepair.beliefs.moments import CrossMoments
from truepair.beliefs.whitening import Axes


@pytest.mark.parametrize("widths", [(5, 4), (4, 7)])
def test_directions_solve_the_textbook_problem(widths):
    generator = np.random.default_rng(0)
    common = generator.normal(size=(400, 3))
    views = [
        (common @ generator.normal(size=(3, width)) + generator.normal(size=(400, width))).astype(np.float32)
        for width in widths
    ]
    axes = [Axes.of([view], [view]) for view in views]
    images, texts = (along(view) for along, view in zip(axes, views, strict=True))
    model = Canonical.fit(CrossMoments.of(images, texts, np.ones(400)), *axes, ridge=0.1)
    cross = images.astype(np.float64).T @ texts / 400
    within = [np.diag(along.spread + 0.1) for along in axes]
    squared = eigh(cross @ np.linalg.inv(within[1]) @ cross.T, within[0], eigvals_only=True)[::-1]
    # Directions of length one in the metric of their side, times the correlation.
    for directions, metric in ((model.images, within[0]), (model.texts, within[1])):
        lengths = np.diag(directions.T @ metric @ directions)
        rank = min(len(lengths), len(squared))
        np.testing.assert_allclose(lengths[:rank], squared[:rank], rtol=1e-3, atol=1e-5)


@pytest.fixture
def codes():
    generator = np.random.default_rng(3)
    return generator.normal(0.3, 1, (9, 5)).astype(np.float32), generator.normal(0.1, 1, (14, 5)).astype(
        np.float32
    )


def test_agreement_against_loops(codes):
    images, texts = ([vector / np.linalg.norm(vector) for vector in side] for side in codes)
    agreement = Agreement(*codes)
    matrix = np.zeros((len(texts), len(images)))
    for t, text in enumerate(texts):
        for i, image in enumerate(images):
            of_image = [image @ other for other in texts]
            of_text = [other @ text for other in images]
            matrix[t, i] = (image @ text - np.mean(of_image)) / np.std(of_image)
            matrix[t, i] += (image @ text - np.mean(of_text)) / np.std(of_text)
    rows = np.arange(14)
    np.testing.assert_allclose(agreement.all(rows), matrix, atol=1e-3)
    listed = np.arange(14) % 9
    np.testing.assert_allclose(agreement(listed, rows), matrix[rows, listed], atol=1e-3)


def test_re_pairings_are_random_and_of_other_images(codes):
    agreement = Agreement(*codes)
    image = np.arange(14) % 9
    scores, others = agreement.repaired(image, 2000, np.random.default_rng(0))
    assert len(scores) == len(others)
    # The expected score over all texts and other images, each image as often as it is given.
    matrix = agreement.all(np.arange(14)).astype(np.float64)
    everything = np.array(
        [[matrix[t, image[s]] for s in range(14) if image[s] != image[t]] for t in range(14)], object
    )
    expected = np.mean([score for of_text in everything for score in of_text])
    assert abs(scores.mean() - expected) < 0.03
    assert set(others) == set(range(9))
    assert len(agreement.repaired(np.zeros(14, int), 3, np.random.default_rng(0))[0]) == 0


def test_codes_of_zero_agree_with_nothing_in_finite_numbers():
    agreement = Agreement(np.zeros((4, 3), np.float32), np.zeros((6, 3), np.float32))
    assert np.isfinite(agreement.all(np.arange(6))).all()
