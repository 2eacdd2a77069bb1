import numpy as np
import pytest

from truepair.pairs.core import Pairs, Provenance
from truepair.pairs.decoys import FEWEST, SHARE, with_decoys


def pairs_of(images, captions=5, known=True):
    image_of = np.repeat(np.arange(images), captions)
    ids = tuple(map(str, range(images * captions)))
    features = np.zeros((images, 1, 2), np.float32)
    truth = image_of if known else None
    return Pairs(features, ids, image_of, ids, ids[:images], "train", Provenance("test"), truth)


@pytest.mark.parametrize(("images", "expected"), [(40, 20), (600, FEWEST), (4000, int(SHARE * 20_000))])
def test_a_share_of_the_pairs_is_repaired_and_the_others_stay(images, expected):
    pairs = pairs_of(images)
    spoilt, decoys = with_decoys(pairs, seed=3)
    assert 0.9 * expected <= decoys.sum() <= expected
    assert np.array_equal(spoilt.image_of != pairs.image_of, decoys)
    assert np.array_equal(np.sort(spoilt.image_of), np.sort(pairs.image_of)), (
        "images keep their number of texts"
    )
    assert np.array_equal(spoilt.mismatched, decoys)
    assert spoilt.texts == pairs.texts


def test_the_choice_belongs_to_the_seed_and_needs_no_truth():
    pairs = pairs_of(100, known=False)
    first, again, other = (with_decoys(pairs, seed)[1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert with_decoys(pairs, 1)[0].mismatched is None


def test_a_handful_of_pairs_has_none():
    assert not with_decoys(pairs_of(1), 0)[1].any()
