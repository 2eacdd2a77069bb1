"""Text vectors: TF-IDF written out, letter groups by hand, axes against a full decomposition."""

import math

import numpy as np
import pytest

from truepair.beliefs.text_features import TextBasis, letter_groups
from truepair.errors import TruepairError

TEXTS = [
    "a dog runs",
    "two dogs run run",
    "the cat sleeps",
    "a cat and a dog",
    "Katze schläft",
    "cats sleep",
] * 4


def test_weights_are_tf_idf_written_out():
    basis = TextBasis.fit(TEXTS)
    weights, words = basis.weights(TEXTS).toarray(), basis.words
    for row, text in enumerate(TEXTS):
        tokens = text.lower().split()
        raw = {}
        for word in set(tokens):
            documents = sum(word in other.lower().split() for other in TEXTS)
            raw[word] = (1 + math.log(tokens.count(word))) * (
                math.log((1 + len(TEXTS)) / (1 + documents)) + 1
            )
        length = math.sqrt(sum(value**2 for value in raw.values()))
        for column, word in enumerate(words):
            assert weights[row, column] == pytest.approx(raw.get(word, 0) / length, abs=1e-6)


def test_letter_groups_by_hand():
    groups = letter_groups(["dog", "dogs"], 3, 3).toarray()
    # Shared by both words: " do" and "dog"; "og ", "ogs" and "gs " belong to one word and are left out.
    assert groups.shape == (2, 2)
    np.testing.assert_allclose(groups, math.sqrt(0.5), rtol=1e-6)
    assert letter_groups(["dog", "cat"]).shape == (2, 0)


def test_similarities_are_kept_when_every_axis_is():
    basis = TextBasis.fit(TEXTS)
    parts = np.hstack([np.eye(len(basis.words)), letter_groups(basis.words).toarray()])
    full = basis.weights(TEXTS).toarray() @ parts
    np.testing.assert_allclose(basis(TEXTS) @ basis(TEXTS).T, full @ full.T, atol=1e-3)


def test_few_axes_keep_as_much_as_the_best_ones_do():
    basis, whole = TextBasis.fit(TEXTS, width=3), TextBasis.fit(TEXTS)
    assert basis.width == 3
    best = np.linalg.svd(whole(TEXTS), compute_uv=False)[:3]
    np.testing.assert_allclose((basis(TEXTS) ** 2).sum(), (best**2).sum(), rtol=1e-3)


def test_forms_of_a_word_are_alike_and_unknown_words_are_nothing():
    basis = TextBasis.fit(TEXTS)
    dog, dogs, cat = basis(["dog", "dogs", "cat"])
    assert dog @ dogs > dog @ cat + 0.1
    assert np.all(basis(["zebra", "", "?!"]) == 0)


def test_texts_without_words_are_refused():
    with pytest.raises(TruepairError, match="None of the texts has a word"):
        TextBasis.fit(["", "...", "?!"])
