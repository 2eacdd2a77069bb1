import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truepair.errors import TruepairError
from truepair.pairs.batching import EpochOrder


@st.composite
def orders(draw):
    world = draw(st.integers(1, 4))
    count = draw(st.integers(world, 200))
    rows = np.random.default_rng(0).permutation(1000)[:count]
    lengths = np.random.default_rng(1).integers(3, 30, size=count) if draw(st.booleans()) else None
    return {
        "rows": rows,
        "batch_size": draw(st.integers(1, 40)),
        "seed": draw(st.integers(0, 2**40)),
        "lengths": lengths,
        "pool": draw(st.integers(1, 5)),
        "world": world,
    }


def all_ranks(order, epoch=0, **more):
    return [list(EpochOrder(**order, rank=rank, **more).batches(epoch)) for rank in range(order["world"])]


@given(orders(), st.integers(0, 50))
def test_every_pair_occurs_once_an_epoch(order, epoch):
    batches = list(itertools.chain(*all_ranks(order, epoch)))
    assert sorted(np.concatenate(batches)) == sorted(order["rows"])


@given(orders())
def test_processes_take_the_same_number_of_steps_of_the_same_size(order):
    ranks = all_ranks(order)
    assert {len(batches) for batches in ranks} == {len(EpochOrder(**order))}
    for step in zip(*ranks, strict=True):
        sizes = [len(batch) for batch in step]
        assert min(sizes) > 0
        assert max(sizes) - min(sizes) <= 1


@given(orders())
def test_processes_together_are_one_with_a_larger_batch(order):
    together = EpochOrder(**{**order, "world": 1, "batch_size": order["batch_size"] * order["world"]})
    steps = [np.sort(np.concatenate(step)) for step in zip(*all_ranks(order), strict=True)]
    single = list(together.batches(0))
    # One process alone keeps a remainder of two pairs; several need two for each of them.
    if len(single) == len(steps):
        for step, batch in zip(steps, single, strict=True):
            assert step.tolist() == np.sort(batch).tolist()


@given(orders(), st.integers(0, 10), st.integers(0, 12))
def test_an_epoch_can_be_resumed_at_any_batch(order, epoch, start):
    whole = list(EpochOrder(**order).batches(epoch))
    rest = list(EpochOrder(**order).batches(epoch, start))
    assert len(rest) == max(0, len(whole) - start)
    for batch, expected in zip(rest, whole[start:], strict=True):
        np.testing.assert_array_equal(batch, expected)


@given(orders())
def test_no_batch_is_a_single_pair_unless_there_is_no_choice(order):
    for batches in all_ranks(order):
        sizes = [len(batch) for batch in batches]
        if order["batch_size"] > 1 and len(sizes) > 1:
            assert min(sizes) >= 2
        assert max(sizes) <= order["batch_size"] + 2


@given(orders())
def test_dropping_leaves_only_full_batches(order):
    full = len(order["rows"]) // (order["batch_size"] * order["world"])
    if not full:
        with pytest.raises(TruepairError, match="give no batch"):
            EpochOrder(**order, drop_last=True)
        return
    for batches in all_ranks(order, drop_last=True):
        assert [len(batch) for batch in batches] == [order["batch_size"]] * full


def sizes(count, batch_size=4):
    return [len(batch) for batch in EpochOrder(np.arange(count), batch_size, seed=0).batches(0)]


def test_the_partial_last_batch_is_kept():
    assert sizes(10) == [4, 4, 2]
    assert sizes(8) == [4, 4]
    assert sizes(3) == [3]
    assert sizes(9) == [4, 5]
    assert sizes(1) == [1]


@pytest.mark.parametrize("lengths", [None, np.arange(100)])
def test_orders_depend_on_seed_and_epoch(lengths):
    def order(seed, epoch):
        return np.concatenate(
            list(EpochOrder(np.arange(100), 8, seed, lengths=lengths, pool=2).batches(epoch))
        ).tolist()

    assert order(1, 0) == order(1, 0)
    different = [order(1, 0), order(1, 1), order(2, 0), order(2, 1)]
    assert len({tuple(entry) for entry in different}) == 4
    assert different[0] != list(range(100))


def test_the_order_of_a_seed_never_changes():
    # Written down: a checkpoint of today must be resumed by the version of tomorrow.
    order = EpochOrder(np.arange(10), 4, seed=123)
    assert [batch.tolist() for batch in order.batches(2)] == [[9, 6, 7, 5], [4, 0, 2, 3], [8, 1]]


def test_texts_of_similar_length_share_a_batch():
    lengths = np.random.default_rng(0).integers(5, 40, size=3000)
    plain = EpochOrder(np.arange(3000), 32, seed=0)
    grouped = EpochOrder(np.arange(3000), 32, seed=0, lengths=lengths)

    def padding(order):
        return sum(int((lengths[batch].max() - lengths[batch]).sum()) for batch in order.batches(0))

    assert padding(grouped) < 0.15 * padding(plain)
    means = [lengths[batch].mean() for batch in grouped.batches(0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3  # short and long batches are mixed


def test_companions_change_from_epoch_to_epoch():
    lengths = np.repeat(np.arange(10), 100)
    order = EpochOrder(np.arange(1000), 10, seed=0, lengths=lengths)

    def companions(epoch):
        batch = next(batch for batch in order.batches(epoch) if 500 in batch)
        return set(batch.tolist()) - {500}

    assert len(companions(0) & companions(1)) <= 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"pool": 0},
        {"world": 2, "rank": 2},
        {"rank": -1},
        {"lengths": np.arange(3)},
        {"rows": np.arange(0)},
        {"rows": np.arange(3), "world": 4},
    ],
)
def test_impossible_orders_are_refused(wrong):
    with pytest.raises(TruepairError):
        EpochOrder(**{"rows": np.arange(10), "batch_size": 4, "seed": 0, **wrong})
