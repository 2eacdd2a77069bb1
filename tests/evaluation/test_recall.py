import dataclasses
import json
import math
import time
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truepair.errors import TruepairError
from truepair.evaluation.recall import Ranks, Recall, Retrieval, first_retrieved, ranks, recall

CAPTIONS = {"five": 5, "one": 1}


@st.composite
def tied_problems(draw):
    """A similarity matrix with few distinct values, and an image for every text."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    similarity = draw(arrays(np.float32, (n, m), elements=st.sampled_from([-1, 0, 0.25, 0.5, 1])))
    return similarity, np.array(draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m)))


def sorted_ranks(similarity, image_of):
    """The published procedure with a stable sort: ascending, then reversed, so that of ties the last one wins."""
    n, m = similarity.shape
    i2t, t2i = np.full(n, -1), np.empty(m, int)
    for i in range(n):
        order = np.argsort(similarity[i], kind="stable")[::-1].tolist()
        own = [order.index(j) for j in range(m) if image_of[j] == i]
        if own:
            i2t[i] = min(own)
    for j in range(m):
        order = np.argsort(similarity[:, j], kind="stable")[::-1].tolist()
        t2i[j] = order.index(image_of[j])
    return i2t, t2i


def unlucky_ranks(similarity, image_of):
    """The documented rule entry by entry: other items that score at least as high stand before."""
    n, m = similarity.shape
    i2t, t2i = np.full(n, -1), np.empty(m, int)
    for i in range(n):
        own = [j for j in range(m) if image_of[j] == i]
        if own:
            best = max(similarity[i, j] for j in own)
            i2t[i] = sum(similarity[i, j] >= best for j in range(m) if j not in own)
    for j in range(m):
        own_score = similarity[image_of[j], j]
        t2i[j] = sum(similarity[i, j] >= own_score for i in range(n) if i != image_of[j])
    return i2t, t2i


def as_row(side):
    return [side.r1, side.r5, side.r10, side.medr, side.meanr]


class TestPublished:
    @pytest.mark.parametrize("name", CAPTIONS)
    @pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
    def test_without_ties_everything_is_equal(self, oracle, name, kind):
        z = oracle("metrics")
        similarity = z[f"{name}_sims"]
        image_of = np.arange(similarity.shape[1]) // CAPTIONS[name]
        found = ranks(kind(similarity), image_of)
        result = found.retrieval()
        for direction in ("i2t", "t2i"):
            np.testing.assert_array_equal(getattr(found, direction), z[f"{name}_{direction}_ranks"])
            np.testing.assert_array_equal(getattr(found, direction), z[f"{name}_{direction}_ranks_stable"])
            for recorded in (z[f"{name}_{direction}"], z[f"{name}_{direction}_stable"]):
                np.testing.assert_array_equal(np.float32(as_row(getattr(result, direction))), recorded)
        assert np.float32(result.rsum) == z[f"{name}_rsum"]
        texts, images = first_retrieved(kind(similarity))
        np.testing.assert_array_equal(texts, z[f"{name}_i2t_top1"])
        np.testing.assert_array_equal(images, z[f"{name}_t2i_top1"])

    @pytest.mark.parametrize("name", CAPTIONS)
    def test_with_ties_no_sort_is_unluckier(self, oracle, name):
        """The published sort is unstable: its result with ties is one of many. Ours is the least of them."""
        z = oracle("metrics")
        similarity = z[f"{name}_ties_sims"]
        image_of = np.arange(similarity.shape[1]) // CAPTIONS[name]
        found = ranks(similarity, image_of)
        stable = Ranks(*sorted_ranks(similarity, image_of))
        for direction in ("i2t", "t2i"):
            as_recorded = z[f"{name}_ties_{direction}_ranks_stable"]
            np.testing.assert_array_equal(getattr(stable, direction), as_recorded)
            np.testing.assert_array_equal(
                np.float32(as_row(Recall.of(as_recorded))), z[f"{name}_ties_{direction}_stable"]
            )
            as_published = z[f"{name}_ties_{direction}_ranks"]
            assert (as_published != as_recorded).any()
            assert (getattr(found, direction) >= as_recorded).all()
            assert (getattr(found, direction) >= as_published).all()
        published_rsum = sum(
            getattr(Recall.of(z[f"{name}_ties_{d}_ranks"]), k)
            for d in ("i2t", "t2i")
            for k in ("r1", "r5", "r10")
        )
        assert float(z[f"{name}_ties_rsum"]) == pytest.approx(published_rsum, rel=1e-6)
        assert found.retrieval().rsum < published_rsum

    @pytest.mark.parametrize("name", CAPTIONS)
    def test_with_ties_what_is_retrieved_first_scores_as_high(self, oracle, name):
        """Published: whichever of the best the sort leaves last. Ours: the first of them."""
        z = oracle("metrics")
        similarity = z[f"{name}_ties_sims"]
        texts, images = first_retrieved(similarity)
        published_texts, published_images = z[f"{name}_ties_i2t_top1"], z[f"{name}_ties_t2i_top1"]
        n, m = map(np.arange, similarity.shape)
        np.testing.assert_array_equal(similarity[n, texts], similarity[n, published_texts])
        np.testing.assert_array_equal(similarity[images, m], similarity[published_images, m])
        assert (texts <= published_texts).all()
        assert (images <= published_images).all()
        assert (texts != published_texts).any() or (images != published_images).any()

    @pytest.mark.parametrize("name", CAPTIONS)
    def test_recalls_follow_from_published_ranks(self, oracle, name):
        z = oracle("metrics")
        for direction in ("i2t", "t2i"):
            side = Recall.of(z[f"{name}_ties_{direction}_ranks"])
            np.testing.assert_array_equal(np.float32(as_row(side)), z[f"{name}_ties_{direction}"])


@given(tied_problems())
def test_equals_the_rule_written_as_loops(problem):
    similarity, image_of = problem
    found = ranks(similarity, image_of)
    i2t, t2i = unlucky_ranks(similarity, image_of)
    np.testing.assert_array_equal(found.i2t, i2t)
    np.testing.assert_array_equal(found.t2i, t2i)


@given(tied_problems(), st.integers(0, 100))
def test_order_of_images_and_texts_does_not_matter(problem, seed):
    similarity, image_of = problem
    rng = np.random.default_rng(seed)
    images, texts = rng.permutation(similarity.shape[0]), rng.permutation(similarity.shape[1])
    place = np.argsort(images)
    found = ranks(similarity[images][:, texts], place[image_of[texts]])
    plain = ranks(similarity, image_of)
    np.testing.assert_array_equal(found.i2t, plain.i2t[images])
    np.testing.assert_array_equal(found.t2i, plain.t2i[texts])


@given(tied_problems())
def test_first_retrieved_is_the_first_of_the_best(problem):
    similarity, _ = problem
    texts, images = first_retrieved(similarity)
    np.testing.assert_array_equal(texts, similarity.argmax(axis=1))
    np.testing.assert_array_equal(images, similarity.argmax(axis=0))


def test_more_rows_than_one_piece(monkeypatch):
    monkeypatch.setattr("truepair.evaluation.recall._PIECE", 64)
    rng = np.random.default_rng(0)
    similarity = rng.normal(size=(700, 30)).round(1)
    image_of = rng.integers(0, 700, 30)
    found = ranks(similarity, image_of)
    i2t, t2i = unlucky_ranks(similarity, image_of)
    np.testing.assert_array_equal(found.i2t, i2t)
    np.testing.assert_array_equal(found.t2i, t2i)
    assert t2i.max() > 255  # more than one byte can count
    np.testing.assert_array_equal(first_retrieved(similarity)[1], similarity.argmax(axis=0))


def test_a_large_matrix_is_not_copied_and_counting_takes_a_tenth_of_sorting_its_rows():
    similarity = np.random.default_rng(1).standard_normal((1000, 5000), dtype=np.float32)
    image_of = np.arange(5000) // 5
    tracemalloc.start()
    ranks(similarity, image_of)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < similarity.nbytes / 4

    def seconds(function):
        begin = time.process_time()
        function()
        return time.process_time() - begin

    counted = min(seconds(lambda: ranks(similarity, image_of)) for _ in range(3))
    assert counted < seconds(lambda: np.argsort(similarity[:100], axis=1))


def test_one_score_for_everything_finds_nothing():
    result = recall(np.zeros((20, 100)), np.arange(100) // 5)
    assert result.rsum == 0
    assert (result.i2t.medr, result.t2i.medr) == (96, 20)


def test_an_image_without_a_text_is_no_query_but_stands_in_the_way():
    similarity = np.array([[0.5, 0.1], [0.9, 0.2]])
    found = ranks(similarity, [0, 0])
    assert found.i2t.tolist() == [0, -1]
    assert found.t2i.tolist() == [1, 1]
    assert found.retrieval().i2t == Recall(100, 100, 100, 1, 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_precision_of_torch(dtype):
    similarity = torch.rand(6, 12, generator=torch.Generator().manual_seed(1)).to(dtype)
    image_of = np.arange(12) // 2
    assert recall(similarity, image_of) == recall(similarity.double().numpy(), image_of)


def test_half_precision_of_numpy_and_views():
    similarity = np.random.default_rng(3).random((6, 12)).astype(np.float16)
    image_of = np.arange(12) // 2
    assert recall(similarity, image_of) == recall(similarity.astype(np.float64), image_of)
    assert recall(np.asfortranarray(similarity), image_of) == recall(similarity, image_of)


def test_the_result_as_json():
    result = recall(np.eye(4), np.arange(4))
    words = json.loads(json.dumps(dataclasses.asdict(result)))
    side = {"r1": 100.0, "r5": 100.0, "r10": 100.0, "medr": 1.0, "meanr": 1.0}
    assert words == {"i2t": side, "t2i": side, "rsum": 600.0}
    assert Retrieval(result.i2t, result.t2i) == result


def test_what_does_not_fit_is_an_error():
    with pytest.raises(TruepairError, match="3 texts, but image_of names the images of 2"):
        recall(np.zeros((2, 3)), [0, 1])
    with pytest.raises(TruepairError, match="from 0 to 2"):
        recall(np.zeros((2, 3)), [0, 1, 2])
    with pytest.raises(TruepairError, match="no texts"):
        recall(np.zeros((2, 0)), [])
    similarity = np.eye(3)
    similarity[1, 2] = math.nan
    with pytest.raises(TruepairError, match="not a number"):
        recall(similarity, [0, 1, 2])
