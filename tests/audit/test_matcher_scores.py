"""Scores of listed pairs and best partners, against loops over the whole matrix."""

import numpy as np
import pytest
import torch

from truepair.audit import matcher_scores
from truepair.audit.matcher_scores import Ensemble, repairings
from truepair.matchers.registry import build_matcher
from truepair.pairs.batch import BatchReader
from truepair.pairs.core import Pairs, Provenance
from truepair.pairs.vocabulary import Vocabulary

IMAGES, TEXTS = 12, 30


@pytest.fixture(params=["vse_infty", "sgr", "projection"])
def ensemble(request):
    generator = np.random.default_rng(0)
    name = request.param
    texts = [" ".join(generator.choice(list("abcdefgh"), 4)) for _ in range(TEXTS)]
    pairs = Pairs(
        images=generator.normal(size=(IMAGES, 1 if name == "projection" else 3, 8)).astype(np.float32),
        texts=texts,
        image_of=generator.integers(0, IMAGES - 1, TEXTS),  # the last image has no text
        ids=[f"p{row}" for row in range(TEXTS)],
        image_ids=[f"i{row}" for row in range(IMAGES)],
        split="train",
        provenance=Provenance("made up"),
        text_vectors=generator.normal(size=(TEXTS, 6)).astype(np.float32) if name == "projection" else None,
    )
    vocabulary = None if name == "projection" else Vocabulary.build(texts, min_count=1)
    sizes = {"image_width": 8}
    sizes |= {"text_width": 6} if vocabulary is None else {"vocabulary_size": len(vocabulary)}
    torch.manual_seed(0)
    networks = [build_matcher(name, **sizes) for _ in range(2)]
    return Ensemble(networks, BatchReader(pairs, vocabulary))


def whole(ensemble):
    """The mean matrix of both networks, computed at once."""
    matrices = []
    with torch.no_grad():
        for network, (images, texts) in zip(ensemble.networks, ensemble.codes, strict=True):
            matrices.append(network.eval().similarity(images, texts).double().numpy())
    return np.mean(matrices, axis=0)


def test_listed_pairs_have_the_scores_of_the_matrix(ensemble, monkeypatch):
    monkeypatch.setattr(matcher_scores, "_LISTED", 7)
    generator = np.random.default_rng(1)
    images, texts = generator.integers(0, IMAGES, 50), generator.integers(0, TEXTS, 50)
    np.testing.assert_allclose(ensemble.score(images, texts), whole(ensemble)[images, texts], atol=1e-5)


def test_best_partners_are_those_of_the_matrix_without_own_ones(ensemble, monkeypatch):
    monkeypatch.setattr(matcher_scores, "_BLOCK", 7)
    matrix, owners = whole(ensemble), ensemble.pairs.image_of
    masked = matrix.copy()
    masked[owners, np.arange(TEXTS)] = -np.inf
    of_text = ensemble.best_images(np.arange(TEXTS), np.arange(IMAGES))
    of_image = ensemble.best_texts(np.arange(IMAGES), np.arange(TEXTS))
    # The shortlist of twenty holds every image, and nearly every text.
    np.testing.assert_allclose(of_text.scores, masked.max(0), atol=1e-5)
    np.testing.assert_array_equal(of_text.rows, masked.argmax(0))
    for image in range(IMAGES):
        assert owners[of_image.rows[image]] != image
        assert of_image.scores[image] == pytest.approx(masked[image, of_image.rows[image]], abs=1e-5)
    if ensemble.networks[0].has_parts is False:
        np.testing.assert_array_equal(of_image.rows, masked.argmax(1))


def test_best_partners_among_some_items_only(ensemble):
    texts, images = np.array([3, 8, 20]), np.array([0, 5, 6, 11])
    of_text, of_image = ensemble.best_images(texts, images), ensemble.best_texts(images, texts)
    assert set(of_text.rows) <= {*images, -1}
    assert set(of_image.rows) <= {*texts, -1}
    matrix, owners = whole(ensemble), ensemble.pairs.image_of
    for place, text in enumerate(texts):
        others = [image for image in images if image != owners[text]]
        assert of_text.rows[place] == max(others, key=lambda image: matrix[image, text])


def test_an_image_with_no_other_text_has_no_partner(ensemble):
    text = np.array([4])
    own = ensemble.pairs.image_of[text]
    of_text, of_image = ensemble.best_images(text, own), ensemble.best_texts(own, text)
    assert of_text.rows.tolist() == of_image.rows.tolist() == [-1]


def test_repairings_are_other_images_of_the_same_rows():
    generator = np.random.default_rng(0)
    image_of = generator.integers(0, 5, 40)
    rows = np.arange(0, 40, 2)
    images, texts = repairings(image_of, rows, 8, generator)
    assert set(texts) <= set(rows)
    assert set(images) <= set(image_of[rows])
    assert (images != image_of[texts]).all()
    assert len(images) > 8 * len(rows) / 2
