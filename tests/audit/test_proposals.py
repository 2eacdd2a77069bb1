"""Proposals against plain loops, in tiles and whole, and where the data are too large to look at all of it."""

import numpy as np
import pytest

from truepair.audit import proposals as room
from truepair.audit.proposals import Contest, contests, proposal_confidence
from truepair.beliefs.canonical import Agreement
from truepair.beliefs.null import mismatch_probability


@pytest.fixture(scope="module")
def probability(heard):
    return mismatch_probability(heard.scores, heard.null_scores)


@pytest.fixture(scope="module")
def found(noisy, heard, probability):
    return contests(noisy, heard.witness, probability)


def test_contests_against_loops(noisy, heard, found):
    texts, images = found
    fold = heard.witness.fold[noisy.image_of]
    for k in (0, 3):
        rows = np.flatnonzero(fold == k)
        image_codes = heard.witness.image_codes(noisy, np.arange(noisy.n_images), k)
        text_codes = heard.witness.text_codes(noisy, np.arange(len(noisy)), k)
        with_images = Agreement(image_codes, text_codes[rows])
        held = np.unique(noisy.image_of[rows])
        with_texts = Agreement(text_codes, image_codes[held])
        for line in range(0, len(rows), 17):
            row, own = rows[line], noisy.image_of[rows[line]]
            scores = {
                image: float(with_images(np.array([image]), np.array([line]))[0])
                for image in range(noisy.n_images)
            }
            _same_contest(images, row, scores, [own], own)
            asking = np.array([np.searchsorted(held, own)])
            scores = {text: float(with_texts(np.array([text]), asking)[0]) for text in range(len(noisy))}
            _same_contest(texts, row, scores, np.flatnonzero(noisy.image_of == own), row)


def _same_contest(contest, row, scores, left_out, given):
    others = {name: score for name, score in scores.items() if name not in set(left_out)}
    best = max(others, key=others.get)
    assert contest.rows[row] == best
    assert contest.best[row] == pytest.approx(others[best], abs=1e-3)
    assert contest.others[row] == pytest.approx(np.log(np.sum(np.exp(list(others.values())))), abs=1e-3)
    assert contest.given[row] == pytest.approx(scores[given], abs=1e-3)


def test_tiles_equal_the_whole(noisy, heard, probability, found, monkeypatch):
    monkeypatch.setattr(room, "_TILE", 37)
    monkeypatch.setattr(room, "_LINES", 11)
    texts, images = contests(noisy, heard.witness, probability)
    assert np.array_equal(images.rows, found[1].rows)
    for one, other in zip(texts.rows, found[0].rows, strict=True):
        # The same text, or one of the same words, which no bag of words can tell apart.
        assert sorted(noisy.texts[one].split()) == sorted(noisy.texts[other].split())
    for whole, tiled in zip(found, (texts, images), strict=True):
        for name in ("best", "others", "given"):
            np.testing.assert_allclose(getattr(tiled, name), getattr(whole, name), atol=1e-4)


def test_the_true_image_is_often_the_first(noisy, found):
    wrong = noisy.mismatched
    assert (found[1].rows == noisy.true_image_of)[wrong].mean() > 0.5


def test_larger_data_get_proposals_for_suspects_and_for_some_to_learn_from(
    noisy, heard, probability, found, monkeypatch
):
    monkeypatch.setattr(room, "COMPARISONS", 400 * len(noisy))
    texts, images = contests(noisy, heard.witness, probability)
    looked_at = images.rows >= 0
    np.testing.assert_array_equal(texts.rows >= 0, looked_at)
    assert looked_at.sum() == 400
    right = looked_at & (probability < 0.5)
    assert right.sum() == 100
    assert probability[looked_at & ~right].min() >= probability[~looked_at].max()
    suspects = looked_at & ~right
    # Not quite the same: an image's mean agreement is that with the texts that were looked at.
    assert (images.rows[suspects] == found[1].rows[suspects]).mean() > 0.9
    confidence = proposal_confidence(images, probability)
    assert (confidence[~looked_at] == 0).all()
    whole = proposal_confidence(found[1], probability)
    assert abs(confidence[suspects].mean() - whole[suspects].mean()) < 0.1


def test_confidence_is_what_comes_true(noisy, probability, found):
    wrong = noisy.mismatched
    confidence = proposal_confidence(found[1], probability)
    assert ((confidence >= 0) & (confidence <= probability)).all()
    right = found[1].rows == noisy.true_image_of
    sure = wrong & (confidence > np.median(confidence[wrong]))
    assert right[sure].mean() > right[wrong & ~sure].mean()
    assert abs(confidence[wrong].mean() - right[wrong].mean()) < 0.1


def test_nothing_to_learn_from_gives_no_confidence():
    contest = Contest(np.zeros(60, np.int64), np.ones(60), np.ones(60), np.zeros(60))
    assert (proposal_confidence(contest, np.full(60, 0.9)) == 0).all()
    assert (proposal_confidence(Contest.empty(60), np.full(60, 0.1)) == 0).all()
