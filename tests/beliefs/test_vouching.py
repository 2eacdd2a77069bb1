"""Texts of one image vouch for each other, where single texts were moved and only there."""

from dataclasses import replace

import numpy as np
import pytest

from truepair.beliefs import vouching as room
from truepair.beliefs.judgement import judge, witness_prior
from truepair.beliefs.null import mismatch_probability
from truepair.beliefs.share import estimate_share
from truepair.beliefs.vouching import vouched
from truepair.beliefs.witness import hear, text_vectors
from truepair.evaluation.identification import auc
from truepair.pairs.noise import image_noise
from truepair.pairs.readers import load_pairs


@pytest.fixture(scope="module")
def clean(scenes):
    """Pictures that show less than the texts say."""
    pairs = load_pairs(scenes)
    blur = np.random.default_rng(4).normal(0, 3.5, pairs.images.shape)
    return replace(pairs, images=np.asarray(pairs.images, dtype=np.float32) + blur.astype(np.float32))


@pytest.fixture(scope="module")
def noise(noisy, heard):
    return estimate_share(heard.scores, heard.null_scores, noisy.image_of, heard.null_images)


@pytest.fixture(scope="module")
def probability(heard, noise):
    return mismatch_probability(heard.scores, heard.null_scores, noise.share)


@pytest.fixture(scope="module")
def together(noisy, heard, probability):
    return vouched(noisy, heard, probability)


def test_wrong_pairs_are_told_better_and_score_as_re_pairings_do(noisy, heard, together):
    assert auc(-together.scores, noisy.mismatched) > auc(-heard.scores, noisy.mismatched) + 0.01
    wrong, null = together.scores[noisy.mismatched], together.null_scores
    assert abs(wrong.mean() - null.mean()) < 3.5 * wrong.std() / np.sqrt(len(wrong)) + 0.05 * null.std()


def test_agreement_with_the_other_texts_against_loops(noisy, heard, probability):
    wording = room._wordings(noisy)
    assert len(set(wording.tolist())) == len(set(noisy.texts))
    everyone = np.ones(len(noisy), dtype=bool)
    said = room._ask(noisy, heard, probability, wording, everyone, np.random.default_rng(0))
    given = said.given
    agreement = np.full(noisy.n_images, -np.inf)
    np.maximum.at(agreement, noisy.image_of, heard.scores)
    np.testing.assert_allclose(
        np.sort(said.best), np.sort(agreement[np.unique(noisy.image_of)]), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(given[:, 0], heard.scores, rtol=1e-3, atol=1e-4)
    texts = heard.witness.texts(text_vectors(noisy, np.arange(len(noisy)), heard.witness.basis))
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    for row in range(0, len(noisy), 41):
        rest = [
            t
            for t in range(len(noisy))
            if noisy.image_of[t] == noisy.image_of[row] and noisy.texts[t] != noisy.texts[row]
        ]
        total = sum((1 - probability[t]) * texts[t] for t in rest)
        length = np.linalg.norm(total) if rest else 0.0
        expected = texts[row] @ total / length if length > 1e-3 else 0.0
        assert given[row, 1] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_parts_equal_the_whole(noisy, heard, probability, together, monkeypatch):
    monkeypatch.setattr(room, "TOGETHER", 50)
    in_parts = vouched(noisy, heard, probability)
    assert np.corrcoef(in_parts.scores, together.scores)[0, 1] > 0.98


def test_judgement_and_prior_believe_the_other_texts(noisy, heard, together):
    judgement = judge(noisy, heard=heard)
    assert judgement.with_texts
    np.testing.assert_array_equal(judgement.testimony.scores, together.scores)
    assert judgement.noise.low <= noisy.mismatched.mean() <= judgement.noise.high
    assert abs(judgement.probability.mean() - noisy.mismatched.mean()) < 0.05
    np.testing.assert_array_equal(witness_prior(noisy), judgement.probability)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_images_that_were_exchanged_with_their_texts_are_left_to_the_witness(clean, share):
    """Their texts go on agreeing with each other, which would call every one of them right."""
    moved = replace(clean, image_of=image_noise(clean.n_images, share, 2)[clean.image_of])
    moved = replace(moved, true_image_of=clean.image_of)
    judgement = judge(moved)
    assert not judgement.with_texts
    assert auc(judgement.probability, moved.mismatched) > 0.85


def test_one_text_an_image_has_none_to_vouch_for_it(clean):
    single = clean.subset(np.unique(clean.image_of, return_index=True)[1])
    assert not judge(single).with_texts


def test_a_text_that_is_there_twice_does_not_vouch_for_itself(clean):
    """Every image with one text, twice."""
    first = np.unique(clean.image_of, return_index=True)[1]
    twice = clean.subset(np.concatenate([first, first]))
    twice = replace(twice, ids=[f"{name}#{i}" for i, name in enumerate(twice.ids)])
    assert not judge(twice).with_texts


def test_images_with_one_text_keep_the_order_that_the_witness_gives(noisy):
    """Half of the images have one text only."""
    first = np.unique(noisy.image_of, return_index=True)[1]
    kept = (noisy.image_of % 2 == 0) | np.isin(np.arange(len(noisy)), first)
    mixed = noisy.subset(np.flatnonzero(kept))
    judgement = judge(mixed)
    assert judgement.with_texts
    alone = np.bincount(mixed.image_of, minlength=mixed.n_images)[mixed.image_of] == 1
    witness = hear(mixed).scores[alone]
    order = np.argsort(witness)
    assert (np.diff(judgement.testimony.scores[alone][order]) >= 0).all()
    assert auc(judgement.probability, mixed.mismatched) > 0.93


def test_no_weight_is_negative():
    generator = np.random.default_rng(0)
    evidence = np.abs(generator.normal(1, 1, (500, 4))) * [1, -1, 1, 1]
    null = np.abs(generator.normal(0, 1, (900, 4)))
    moved = evidence.copy()
    moved[:, 1] += 1
    scores, _ = room._learnt(np.concatenate([evidence, moved]), null, 0)
    assert (scores[500:] >= scores[:500]).all()


def test_texts_that_came_as_vectors_vouch_too(noisy):
    generator = np.random.default_rng(3)
    words = sorted({word for text in noisy.texts for word in text.split()})
    looks = dict(zip(words, generator.normal(size=(len(words), 40)), strict=True))
    vectors = np.array([sum(looks[word] for word in text.split()) for text in noisy.texts], dtype=np.float32)
    embedded = replace(noisy, texts=(), text_vectors=vectors)
    judgement = judge(embedded)
    assert judgement.with_texts
    assert auc(judgement.probability, noisy.mismatched) > 0.95
