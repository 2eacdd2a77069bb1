import dataclasses
import json

import numpy as np
import pytest

from truepair.errors import TruepairError
from truepair.evaluation.protocols import PROTOCOLS, Protocol, evaluate, find_protocol, mean_retrieval
from truepair.evaluation.recall import Recall, Retrieval, recall
from truepair.evaluation.similarity import Scorer

FOLDS = Protocol("folds", "five folds", folds=5)
IMAGE_OF = np.arange(100) // 5


def block_diagonal(z):
    """The five recorded folds as one split: outside the folds every image seems to fit every text."""
    whole = np.full((100, 500), 9.0, dtype=np.float32)
    for k, fold in enumerate(z["fold_sims"]):
        whole[20 * k : 20 * k + 20, 100 * k : 100 * k + 100] = fold
    return whole


def as_row(result):
    return [getattr(side, f.name) for side in (result.i2t, result.t2i) for f in dataclasses.fields(Recall)]


class TestPublished:
    def test_each_fold_without_ties(self, oracle):
        z = oracle("metrics")
        for k in (0, 1, 2, 4):  # the fourth fold has ties
            result = recall(z["fold_sims"][k], IMAGE_OF)
            np.testing.assert_array_equal(np.float32(as_row(result)), z["fold_results"][k][:10])
            assert result.rsum == pytest.approx(float(z["fold_results"][k][12]), rel=1e-6)

    def test_the_fold_with_ties_is_never_luckier(self, oracle):
        z = oracle("metrics")
        result = recall(z["fold_sims"][3], IMAGE_OF)
        assert result.rsum <= z["fold_results"][3][12] + 1e-4

    def test_mean_of_folds_and_the_published_rsum(self, oracle):
        """The published script prints six times the mean image-to-text recall and calls it rsum."""
        z = oracle("metrics")
        results = [
            Retrieval(Recall(*map(float, row[:5])), Recall(*map(float, row[5:10])))
            for row in z["fold_results"]
        ]
        mean = mean_retrieval(results)
        np.testing.assert_allclose(as_row(mean), z["fold_mean"][:10], rtol=1e-6)
        assert mean.rsum == pytest.approx(float(z["fold_mean_rsum_true"]), rel=1e-6)
        assert np.mean([r.rsum for r in results]) == pytest.approx(mean.rsum)
        as_printed = 6 * (mean.i2t.r1 + mean.i2t.r5 + mean.i2t.r10) / 3
        assert as_printed == pytest.approx(float(z["fold_rsum_as_printed"]), rel=1e-6)
        assert abs(as_printed - mean.rsum) > 1

    def test_folds_of_one_split(self, oracle):
        z = oracle("metrics")
        whole, image_of = block_diagonal(z), np.arange(500) // 5
        expected = mean_retrieval([recall(fold, IMAGE_OF) for fold in z["fold_sims"]])
        assert evaluate(whole, image_of, FOLDS) == expected
        scorer = Scorer(100, 500, lambda rows, columns: whole[rows][:, columns])
        assert evaluate(scorer, image_of, FOLDS, memory_limit=4000) == expected


def test_folds_look_only_at_themselves():
    seen = np.zeros((10, 20), bool)

    def block(rows, columns):
        seen[np.ix_(np.arange(10)[rows], np.arange(20)[columns])] = True
        return np.zeros((10, 20))[rows][:, columns]

    image_of = np.arange(20) % 10  # the texts of a fold do not lie side by side
    evaluate(Scorer(10, 20, block), image_of, FOLDS)
    expected = np.arange(10)[:, None] // 2 == image_of // 2
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("captions", [1, 3, 5])
def test_f30k_is_the_whole_split(captions):
    similarity = np.random.default_rng(0).random((40, 40 * captions))
    image_of = np.arange(40 * captions) // captions
    assert evaluate(similarity, image_of, "f30k") == recall(similarity, image_of)


def test_pairs_take_any_order():
    similarity = np.random.default_rng(1).random((30, 30))
    order = np.random.default_rng(2).permutation(30)
    assert evaluate(similarity, order, "pairs") == recall(similarity, order)


def test_coco():
    similarity = np.zeros((5000, 5000), dtype=np.float32)
    similarity[np.arange(5000), np.arange(5000)] = 1
    similarity[:1000, 1000:] = 2  # the first fold's images get in the way of all others
    one, five = (evaluate(similarity, np.arange(5000), name) for name in ("coco-1k", "coco-5k"))
    assert one.rsum == 600
    assert five.t2i.r1 == 20
    assert json.loads(json.dumps(dataclasses.asdict(one)))["rsum"] == 600


def test_data_that_does_not_fit_the_protocol():
    with pytest.raises(TruepairError, match="coco-1k needs 5000 images, but there are 10"):
        evaluate(np.eye(10), np.arange(10), "coco-1k")
    with pytest.raises(TruepairError, match=r"exactly one text .* 2 images have 4 texts"):
        evaluate(np.zeros((2, 4)), [0, 0, 1, 1], "pairs")
    with pytest.raises(TruepairError, match="exactly one text"):
        evaluate(np.zeros((2, 2)), [0, 0], "pairs")
    with pytest.raises(TruepairError, match="f30k, coco-1k, coco-5k, pairs"):
        find_protocol("flickr")


def test_every_protocol_has_a_purpose():
    assert list(PROTOCOLS) == ["f30k", "coco-1k", "coco-5k", "pairs"]
    assert all(find_protocol(name).purpose for name in PROTOCOLS)
