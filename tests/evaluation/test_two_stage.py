import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truepair.errors import TruepairError
from truepair.evaluation.recall import ranks
from truepair.evaluation.two_stage import Size, Stages, matcher_stages, two_stage_ranks
from truepair.matchers.registry import MATCHERS, build_matcher

FEW = st.sampled_from([-1, 0, 0.25, 0.5, 1])  # so that there are ties


class LookUp:
    """Stages whose first scores are the matrix rough, and whose exact ones are the matrices exact."""

    def __init__(self, rough, *exact):
        self.exact, self.sizes, self.scored = exact, [], np.zeros(rough.shape, int)
        self.stages = Stages(*rough.shape, lambda rows, columns: rough[rows][:, columns], self)

    def __call__(self, rows, columns):
        np.add.at(self.scored, (rows, columns), 1)
        self.sizes.append(len(rows))
        return np.stack([matrix[rows, columns] for matrix in self.exact])


@st.composite
def problems(draw):
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    rough, exact = (draw(arrays(np.float32, (n, m), elements=FEW)) for _ in range(2))
    image_of = np.array(draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m)))
    return rough, exact, image_of, Size(draw(st.integers(1, n)), draw(st.integers(1, m)))


def plain(rough, exact, image_of, size):
    """Every query's order of all items written out: the listed ones by exact score, then the others."""
    n, m = rough.shape
    listed = np.zeros((n, m), bool)
    for i, j in itertools.product(range(n), range(m)):
        better_texts = sum(rough[i, k] > rough[i, j] for k in range(m))
        better_images = sum(rough[k, j] > rough[i, j] for k in range(n))
        listed[i, j] = better_texts < size.texts or better_images < size.images
    place = {(i, j): (listed[i, j], (exact if listed[i, j] else rough)[i, j]) for i, j in np.ndindex(n, m)}
    i2t, t2i = [], []
    for i in range(n):
        own = [place[i, j] for j in range(m) if image_of[j] == i]
        others = [place[i, j] for j in range(m) if image_of[j] != i]
        i2t.append(sum(other >= max(own) for other in others) if own else -1)
    for j in range(m):
        own = place[image_of[j], j]
        t2i.append(sum(place[i, j] >= own for i in range(n) if i != image_of[j]))
    return i2t, t2i, listed


@given(problems(), st.integers(1, 2000))
def test_ranks_are_places_in_the_order_of_both_stages(problem, memory_limit):
    rough, exact, image_of, size = problem
    search = LookUp(rough, exact)
    (found,), listed = two_stage_ranks(search.stages, image_of, size, memory_limit)
    i2t, t2i, expected = plain(*problem)
    assert found.i2t.tolist() == i2t
    assert found.t2i.tolist() == t2i
    # Listed pairs are scored once, others never.
    np.testing.assert_array_equal(search.scored, expected.astype(int))
    assert listed == expected.sum()


@given(problems(), st.integers(1, 2000))
def test_with_everything_listed_ranks_are_exact(problem, memory_limit):
    rough, exact, image_of, _ = problem
    ((found,), _) = two_stage_ranks(LookUp(rough, exact).stages, image_of, Size(*rough.shape), memory_limit)
    whole = ranks(exact, image_of)
    np.testing.assert_array_equal(found.i2t, whole.i2t)
    np.testing.assert_array_equal(found.t2i, whole.t2i)


def test_several_scorers_share_the_lists():
    rng = np.random.default_rng(0)
    rough, first, second = rng.random((3, 20, 60), dtype=np.float32)
    image_of, size = np.arange(60) // 3, Size(4, 9)
    together = LookUp(rough, first, second)
    both = two_stage_ranks(together.stages, image_of, size)
    assert together.scored.max() == 1
    for found, exact in zip(both.ranks, (first, second), strict=True):
        ((alone,), listed) = two_stage_ranks(LookUp(rough, exact).stages, image_of, size)
        np.testing.assert_array_equal(found.i2t, alone.i2t)
        np.testing.assert_array_equal(found.t2i, alone.t2i)
        assert listed == both.listed


def test_a_matcher_that_gives_one_score_to_everything_finds_nothing():
    rough = np.random.default_rng(1).random((10, 20), dtype=np.float32)
    ((found,), _) = two_stage_ranks(
        LookUp(rough, np.zeros((10, 20), np.float32)).stages, np.arange(20) // 2, Size(10, 20)
    )
    assert set(found.t2i) == {9}
    assert set(found.i2t) == {18}


def test_the_order_of_the_data_does_not_matter():
    """Not even where the shortlist ends between tied items."""
    rng = np.random.default_rng(2)
    rough, exact = rng.integers(0, 4, (2, 12, 30)).astype(np.float32)
    image_of, rows, columns = np.arange(30) % 12, rng.permutation(12), rng.permutation(30)
    place = np.argsort(rows)
    ((straight,), _) = two_stage_ranks(LookUp(rough, exact).stages, image_of, Size(3, 7))
    shuffled = LookUp(rough[rows][:, columns], exact[rows][:, columns])
    ((found,), _) = two_stage_ranks(shuffled.stages, place[image_of[columns]], Size(3, 7))
    np.testing.assert_array_equal(found.i2t, straight.i2t[rows])
    np.testing.assert_array_equal(found.t2i, straight.t2i[columns])


@pytest.mark.parametrize("megabytes", [0.1, 1, 100])
def test_pieces_stay_within_the_memory(megabytes):
    rng = np.random.default_rng(3)
    rough, exact = rng.random((2, 200, 1000), dtype=np.float32)
    image_of, limit = np.arange(1000) // 5, int(megabytes * 2**20)
    search = LookUp(rough, exact)
    ((found,), listed) = two_stage_ranks(search.stages, image_of, Size(20, 100), limit)
    # The first call is for the own pairs, of which there are as many as texts at most.
    assert max(search.sizes[1:]) * 24 <= limit
    assert search.sizes[0] <= 1000
    assert listed < 0.2 * exact.size
    ((whole,), _) = two_stage_ranks(LookUp(rough, exact).stages, image_of, Size(20, 100))
    np.testing.assert_array_equal(found.t2i, whole.t2i)
    np.testing.assert_array_equal(found.i2t, whole.i2t)


def encoded(name, seed):
    # In double precision untrained scores differ by more than their last digits.
    torch.manual_seed(seed)
    sizes = {"vocabulary_size": 30} if MATCHERS[name].texts == "words" else {"text_width": 12}
    matcher = build_matcher(name, image_width=12, embedding=16, **sizes).eval().double()
    g = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 7, (40,), generator=g)
    tokens = torch.randint(1, 30, (40, 6), generator=g)
    if MATCHERS[name].texts == "vectors":
        tokens = torch.rand(40, 12, generator=g).double()
    with torch.no_grad():
        regions = torch.rand(8, 9, 12, generator=g).double()
        return matcher, (matcher.encode_images(regions), matcher.encode_texts(tokens, lengths))


@pytest.mark.parametrize("name", MATCHERS)
def test_every_matcher_alone_and_in_an_ensemble(name):
    networks, codes = zip(*(encoded(name, seed) for seed in (0, 1)), strict=True)
    stages = matcher_stages(networks, codes)
    with torch.no_grad():
        exact = [network.similarity(*code).numpy() for network, code in zip(networks, codes, strict=True)]
        rough = sum(
            n.image_vectors(i) @ n.text_vectors(t).T for n, (i, t) in zip(networks, codes, strict=True)
        )
    image_of, size = np.arange(40) % 8, Size(3, 10)
    np.testing.assert_allclose(stages.rough(slice(0, 8), slice(0, 40)), rough.numpy(), atol=1e-6)
    found = two_stage_ranks(stages, image_of, size)
    assert len(found.ranks) == 3
    for one, matrix in zip(found.ranks, (*exact, np.mean(exact, axis=0)), strict=True):
        i2t, t2i, listed = plain(rough.numpy(), matrix, image_of, size)
        assert one.i2t.tolist() == i2t
        assert one.t2i.tolist() == t2i
        assert found.listed == listed.sum()
    everything = two_stage_ranks(stages, image_of, Size(8, 40))
    for one, matrix in zip(everything.ranks, exact, strict=False):
        assert one.t2i.tolist() == ranks(matrix, image_of).t2i.tolist()


def test_part_of_a_set():
    rng = np.random.default_rng(4)
    rough, exact = rng.random((2, 6, 9), dtype=np.float32)
    images, texts = np.array([4, 1]), np.array([0, 8, 3])
    part = LookUp(rough, exact).stages.take(images, texts)
    np.testing.assert_allclose(part.rough(slice(0, 2), slice(0, 3)), rough[np.ix_(images, texts)])
    np.testing.assert_array_equal(part.listed(np.array([0, 1]), np.array([2, 0]))[0], exact[[4, 1], [3, 0]])


def test_a_matcher_in_training_mode_is_refused():
    matcher, codes = encoded("projection", 0)
    with pytest.raises(TruepairError, match="training mode"):
        matcher_stages([matcher.train()], [codes])


@pytest.mark.parametrize("place", [(0, 0), (2, 1)])
def test_a_similarity_that_is_not_a_number_is_refused(place):
    exact = np.eye(4, dtype=np.float32)
    exact[place] = np.nan
    with pytest.raises(TruepairError, match="not a number"):
        two_stage_ranks(LookUp(np.eye(4, dtype=np.float32), exact).stages, np.arange(4), Size(4, 4))


def test_sizes_by_share():
    assert Size.of_share(0.1, 1000, 5000) == (100, 500)
    assert Size.of_share(0.07, 100, 500) == (7, 35)  # 0.07 * 100 is a little more than 7
    assert Size.of_share(0.01, 10, 50) == (1, 1)
    assert Size.of_share(1.0, 10, 50) == (10, 50)
