import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truepair.errors import TruepairError
from truepair.evaluation.pmrp import pmrp


def r_precision_by_hand(scores, plausible):
    """Sorted best first; of equal scores the implausible ones first."""
    wanted = sum(plausible)
    if not wanted:
        return math.nan
    order = sorted(range(len(scores)), key=lambda j: (-scores[j], plausible[j]))
    return sum(plausible[j] for j in order[:wanted]) / wanted


def pmrp_by_hand(similarity, labels, image_of):
    kept = [any(row) for row in labels]

    def far(i, j):
        return sum(a != b for a, b in zip(labels[i], labels[j], strict=True))

    texts = [j for j in range(len(image_of)) if kept[image_of[j]]]
    images = [i for i in range(len(labels)) if kept[i]]
    i2t, t2i = [], []
    for zeta in (0, 1, 2):
        i2t.append(
            np.nanmean(
                [
                    r_precision_by_hand(
                        [similarity[i][j] for j in texts], [far(i, image_of[j]) <= zeta for j in texts]
                    )
                    for i in images
                ]
            )
        )
        t2i.append(
            np.nanmean(
                [
                    r_precision_by_hand(
                        [similarity[i][j] for i in images], [far(i, image_of[j]) <= zeta for i in images]
                    )
                    for j in texts
                ]
            )
        )
    return 100 * np.mean(i2t), 100 * np.mean(t2i)


def random_problem(seed, n=9, m=20, classes=4):
    rng = np.random.default_rng(seed)
    labels = rng.random((n, classes)) < 0.4
    labels[0, 0] = True
    image_of = np.concatenate([[0], rng.integers(0, n, m - 1)])
    return rng.integers(0, 6, (n, m)) / 5, labels, image_of


@given(st.integers(0, 10_000))
def test_equals_the_definition_written_as_loops(seed):
    similarity, labels, image_of = random_problem(seed)
    result = pmrp(similarity, labels, image_of)
    assert (result.i2t, result.t2i) == pytest.approx(pmrp_by_hand(similarity, labels, image_of))


def test_many_blocks(monkeypatch):
    similarity, labels, image_of = random_problem(1)
    whole = pmrp(similarity, labels, image_of)
    monkeypatch.setattr("truepair.evaluation.pmrp._PIECE", 25)
    assert pmrp(similarity, labels, image_of) == whole
    assert pmrp(torch.from_numpy(similarity), labels, image_of) == whole


def test_labels_as_scores_find_all_exact_matches():
    rng = np.random.default_rng(2)
    labels = rng.random((30, 5)) < 0.5
    labels[:, 0] |= ~labels.any(axis=1)
    image_of = np.arange(90) // 3
    distance = (labels[:, None] != labels[image_of][None]).sum(axis=2)
    result = pmrp(-distance.astype(float), labels, image_of)
    assert (result.i2t, result.t2i) == (100, 100)
    worst = pmrp(distance.astype(float), labels, image_of, zetas=(0,))
    assert (worst.i2t, worst.t2i) == (0, 0)


def test_one_class_per_pair_and_no_tolerance_is_recall_at_one():
    similarity = np.random.default_rng(3).random((12, 12))
    result = pmrp(similarity, np.eye(12), np.arange(12), zetas=(0,))
    own = np.arange(12)
    assert result.i2t == pytest.approx(100 * (similarity.argmax(axis=1) == own).mean())
    assert result.t2i == pytest.approx(100 * (similarity.argmax(axis=0) == own).mean())


def test_one_score_for_everything_finds_only_what_must_be_found():
    labels = np.eye(2)[[0, 0, 0, 1]]
    result = pmrp(np.zeros((4, 4)), labels, np.arange(4), zetas=(0,))
    assert result.i2t == pytest.approx(100 * 3 * (2 / 3) / 4)  # three wanted, one implausible before them


def test_images_without_labels_are_left_out():
    similarity, labels, image_of = random_problem(4)
    labels[5] = False
    before = pmrp(similarity, labels, image_of)
    similarity[5] = 99
    similarity[:, image_of == 5] = 99
    assert pmrp(similarity, labels, image_of) == before


def test_what_does_not_fit_is_an_error():
    with pytest.raises(TruepairError, match="there are 3 images"):
        pmrp(np.eye(3), np.eye(2), [0, 1, 2])
    with pytest.raises(TruepairError, match="No text belongs"):
        pmrp(np.eye(3), np.zeros((3, 2)), [0, 1, 2])
    similarity = np.eye(3)
    similarity[0, 1] = math.nan
    with pytest.raises(TruepairError, match="not a number"):
        pmrp(similarity, np.eye(3), [0, 1, 2])
