import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truepair.errors import TruepairError
from truepair.evaluation.recall import ranks
from truepair.evaluation.similarity import (
    Scorer,
    matcher_scorer,
    mean_scorer,
    ranks_blockwise,
    similarity_matrix,
)
from truepair.matchers.registry import MATCHERS, build_matcher


class Recorder:
    """A matrix behind a scorer that remembers what it was asked for."""

    def __init__(self, matrix):
        self.matrix, self.asked, self.sizes = matrix, np.zeros(matrix.shape, int), []

    def __call__(self, rows, columns):
        block = self.matrix[rows][:, columns]
        places = np.ix_(np.arange(len(self.matrix))[rows], np.arange(self.matrix.shape[1])[columns])
        self.asked[places] += 1
        self.sizes.append(block.size)
        return block

    def scorer(self, **costs):
        return Scorer(*self.matrix.shape, self, **costs)


@st.composite
def problems(draw):
    n, m = draw(st.integers(1, 8)), draw(st.integers(1, 16))
    matrix = draw(arrays(np.float32, (n, m), elements=st.sampled_from([-1, 0, 0.25, 0.5, 1])))
    return matrix, np.array(draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m)))


@given(problems(), st.integers(1, 400))
def test_ranks_in_blocks_are_those_of_the_whole(problem, memory_limit):
    matrix, image_of = problem
    recorder = Recorder(matrix)
    found, whole = ranks_blockwise(recorder.scorer(), image_of, memory_limit), ranks(matrix, image_of)
    np.testing.assert_array_equal(found.i2t, whole.i2t)
    np.testing.assert_array_equal(found.t2i, whole.t2i)
    # Nothing is computed twice, and nothing is left out.
    assert (recorder.asked == 1).all()


@given(problems(), st.integers(1, 400))
@example((np.zeros((4, 1), np.float32), np.zeros(1, int)), 8)  # more images than a block has pairs
def test_the_whole_matrix_from_blocks(problem, memory_limit):
    recorder = Recorder(problem[0])
    np.testing.assert_array_equal(similarity_matrix(recorder.scorer(), memory_limit), problem[0])
    assert (recorder.asked == 1).all()
    assert max(recorder.sizes) * 4 <= max(4, memory_limit / 2)


@pytest.mark.parametrize("megabytes", [0.01, 0.1, 10])
@pytest.mark.parametrize("shuffled", [False, True])
def test_blocks_stay_within_the_memory(megabytes, shuffled):
    rng = np.random.default_rng(0)
    image_of = np.arange(1000) // 5
    if shuffled:
        rng.shuffle(image_of)
    recorder = Recorder(rng.random((200, 1000), dtype=np.float32))
    limit = int(megabytes * 2**20)
    found = ranks_blockwise(recorder.scorer(pair_bytes=8, image_bytes=100, text_bytes=20), image_of, limit)
    assert max(recorder.sizes) * 8 <= limit / 2
    assert len(recorder.sizes) >= 200 * 1000 * 8 / limit
    np.testing.assert_array_equal(found.t2i, ranks(recorder.matrix, image_of).t2i)


def test_large_items_make_small_blocks():
    recorder = Recorder(np.eye(8, dtype=np.float32))
    similarity_matrix(recorder.scorer(image_bytes=100, text_bytes=200), 800)
    assert set(recorder.sizes) == {2}  # two images of 100 bytes, one text of 200


def test_own_scores_come_from_the_blocks_that_are_counted():
    """Scores whose last digits depend on the block must still equal themselves."""
    rng = np.random.default_rng(1)
    matrix = rng.random((30, 90)).round(1)

    def block(rows, columns):
        return matrix[rows][:, columns] + 1e-9 * rng.random()

    image_of = np.arange(90) // 3
    found = ranks_blockwise(Scorer(30, 90, block), image_of, 8 * 30 * 30)
    assert found.i2t.min() >= 0
    assert found.t2i.min() >= 0


def small_matcher(name):
    torch.manual_seed(0)
    sizes = {"vocabulary_size": 30} if MATCHERS[name].texts == "words" else {"text_width": 12}
    return build_matcher(name, image_width=12, embedding=16, **sizes).eval()


def small_codes(name, matcher):
    g = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 7, (15,), generator=g)
    tokens = torch.randint(1, 30, (15, 6), generator=g)
    if MATCHERS[name].texts == "vectors":
        tokens = torch.rand(15, 12, generator=g)
    with torch.no_grad():
        regions = torch.rand(5, 36, 12, generator=g)
        return matcher.encode_images(regions), matcher.encode_texts(tokens, lengths)


@pytest.mark.parametrize("name", MATCHERS)
def test_a_matcher_in_blocks(name):
    matcher = small_matcher(name)
    images, texts = small_codes(name, matcher)
    with torch.no_grad():
        whole = matcher.similarity(images, texts).numpy()
    scorer = matcher_scorer(matcher, images, texts)
    assert (scorer.n_images, scorer.n_texts) == whole.shape
    item = max(scorer.image_bytes, scorer.text_bytes)
    for limit in (1, 8 * item, 2**30):
        np.testing.assert_allclose(similarity_matrix(scorer, limit), whole, atol=1e-6)
    image_of = np.arange(15) % 5
    np.testing.assert_array_equal(ranks_blockwise(scorer, image_of, 8 * item).t2i, ranks(whole, image_of).t2i)


def test_part_of_a_set():
    recorder = Recorder(np.random.default_rng(3).random((6, 9)).astype(np.float32))
    images, texts = np.array([4, 1]), np.array([0, 8, 3])
    part = recorder.scorer(pair_bytes=8).take(images, texts)
    assert (part.n_images, part.n_texts, part.pair_bytes) == (2, 3, 8)
    np.testing.assert_array_equal(similarity_matrix(part, 1), recorder.matrix[np.ix_(images, texts)])


def test_the_mean_of_two_networks():
    a, b = np.random.default_rng(4).random((2, 6, 9)).astype(np.float32)
    both = mean_scorer([Recorder(a).scorer(text_bytes=3), Recorder(torch.from_numpy(b)).scorer(pair_bytes=9)])
    assert (both.pair_bytes, both.image_bytes, both.text_bytes) == (9, 0, 3)
    np.testing.assert_allclose(similarity_matrix(both, 100), (a + b) / 2, rtol=1e-6)


def test_a_matcher_in_training_mode_is_refused():
    matcher = small_matcher("projection")
    images, texts = small_codes("projection", matcher)
    with pytest.raises(TruepairError, match="training mode"):
        matcher_scorer(matcher.train(), images, texts)


def test_a_similarity_that_is_not_a_number_is_refused():
    matrix = np.eye(4, dtype=np.float32)
    matrix[3, 0] = np.nan
    with pytest.raises(TruepairError, match="not a number"):
        ranks_blockwise(Recorder(matrix).scorer(), np.arange(4), 20)
