"""The words that nothing in the picture supports, against a plain recomputation from one-word texts."""

import numpy as np
import pytest

from truepair.audit.evidence import TELLING, unsupported_words
from truepair.beliefs.witness import hear
from truepair.pairs.core import Pairs, Provenance
from truepair.pairs.readers import load_pairs


@pytest.fixture(scope="module")
def pairs(pictured_words):
    return load_pairs(pictured_words, noise=0.3)


@pytest.fixture(scope="module")
def witness(pairs):
    return hear(pairs).witness


@pytest.fixture(scope="module")
def words(pairs, witness):
    return unsupported_words(pairs, witness)


def test_words_against_a_plain_recomputation(pairs, witness, words):
    vocabulary, checked = witness.basis.words, 0
    for k in (0, 5):
        rows = np.flatnonzero(witness.fold[pairs.image_of] == k)
        held = np.unique(pairs.image_of[rows])
        pictures = [code / np.linalg.norm(code) for code in witness.image_codes(pairs, held, k)]
        average = np.mean(pictures, axis=0)
        for row in rows[::29]:
            picture = pictures[int(np.searchsorted(held, pairs.image_of[row]))]
            weights = witness.basis.weights([pairs.texts[row]]).toarray()[0]
            support, strength = {}, {}
            for word in np.flatnonzero(weights):
                code = witness.basis.word_vectors[word] @ witness.texts.vectors @ witness.models[k].texts
                part = [float(weights[word] * (code @ (other - average))) for other in pictures]
                support[word] = float(weights[word] * (code @ (picture - average)))
                strength[word] = float(np.sqrt(np.mean(np.square(part))))
            told = [
                word
                for word in support
                if support[word] < 0 and strength[word] >= TELLING * max(strength.values())
            ]
            assert words[row] == [vocabulary[word] for word in sorted(told, key=support.get)]
            checked += 1
    assert checked > 8


def test_wrong_texts_have_more_words_without_support(pairs, words):
    counts = np.array([len(found) for found in words])
    assert counts[pairs.mismatched].mean() > 2 * counts[~pairs.mismatched].mean()


def test_words_are_of_the_text_itself(pairs, words):
    for text, found in zip(pairs.texts, words, strict=True):
        assert set(found) <= set(text.split())


def test_texts_that_came_as_vectors_have_no_words():
    generator = np.random.default_rng(0)
    common = generator.normal(size=(60, 4)).astype(np.float32)
    images = (common @ generator.normal(size=(4, 8)))[:, None].astype(np.float32)
    names = [str(row) for row in range(60)]
    vectors = (common @ generator.normal(size=(4, 6))).astype(np.float32)
    pairs = Pairs(
        images, (), np.arange(60), names, names, "train", Provenance("made up"), text_vectors=vectors
    )
    assert unsupported_words(pairs, hear(pairs).witness) == [[] for _ in range(60)]
