import numpy as np
import pytest

from truepair.evaluation.calibration import SHARES, Calibration, calibrate, difference
from truepair.evaluation.recall import Ranks, ranks
from truepair.evaluation.two_stage import Size, Stages, two_stage_ranks

IMAGE_OF = np.arange(200) // 5


def noisy(noise, seed=0):
    """Exact scores that find most matches, and rough ones that are the same with noise."""
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal((40, 200)).astype(np.float32)
    exact[IMAGE_OF, np.arange(200)] += 3
    return exact, exact + noise * rng.standard_normal((40, 200)).astype(np.float32)


def looked_up(rough, *exact):
    listed = lambda rows, columns: np.stack([matrix[rows, columns] for matrix in exact])  # noqa: E731
    return Stages(40, 200, lambda rows, columns: rough[rows][:, columns], listed)


def loss_at(share, rough, exact):
    ((found,), _) = two_stage_ranks(looked_up(rough, exact), IMAGE_OF, Size.of_share(share, 40, 200))
    return difference(ranks(exact, IMAGE_OF), found).loss


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("bound", [0.5, 5.0, 30.0])
def test_the_smallest_adequate_share_is_picked(noise, bound):
    exact, rough = noisy(noise)
    chosen = calibrate(looked_up(rough, exact), [exact], IMAGE_OF, bound, longer=0)
    place = SHARES.index(chosen.share)
    assert all(loss_at(share, rough, exact) <= bound for share in SHARES[place:])
    if place:
        assert loss_at(SHARES[place - 1], rough, exact) > bound
    assert chosen.lost - chosen.gained == loss_at(chosen.share, rough, exact)
    assert (chosen.bound, chosen.images, chosen.texts) == (bound, 40, 200)
    assert chosen.size == Size.of_share(chosen.share, 40, 200)


@pytest.mark.parametrize("steps", [0, 1, 3, 50])
def test_lists_are_longer_than_they_had_to_be(steps):
    exact, rough = noisy(1.0)
    stages = looked_up(rough, exact)
    shortest = calibrate(stages, [exact], IMAGE_OF, 5.0, longer=0)
    chosen = calibrate(stages, [exact], IMAGE_OF, 5.0, longer=steps)
    assert SHARES.index(chosen.share) == min(SHARES.index(shortest.share) + steps, len(SHARES) - 1)
    assert chosen.lost - chosen.gained == pytest.approx(loss_at(chosen.share, rough, exact))


def test_rougher_vectors_need_longer_lists_and_a_looser_bound_shorter_ones():
    def share(noise, bound):
        exact, rough = noisy(noise)
        return calibrate(looked_up(rough, exact), [exact], IMAGE_OF, bound).share

    assert share(0.5, 1.0) < share(2.0, 1.0)
    assert share(1.0, 30.0) < share(1.0, 1.0)
    assert share(0.0, 1.0) < 0.2


def test_useless_vectors_list_everything():
    exact, _ = noisy(0.0)
    rough = np.random.default_rng(9).standard_normal((40, 200)).astype(np.float32)
    chosen = calibrate(looked_up(rough, exact), [exact], IMAGE_OF, bound=0.0)
    assert loss_at(chosen.share, rough, exact) <= 0
    assert chosen.share > 0.5


def test_the_worst_of_several_scorers_counts():
    exact, rough = noisy(2.0)
    alone = calibrate(looked_up(rough, rough), [rough], IMAGE_OF, 1.0)
    both = calibrate(looked_up(rough, rough, exact), [rough, exact], IMAGE_OF, 1.0)
    assert both.share > alone.share


def test_what_is_lost_and_gained_is_told_apart():
    exact = Ranks(np.array([0, 3, 20, -1]), np.array([4, 10]))
    found = Ranks(np.array([1, 3, 9, -1]), np.array([12, 0]))
    hits = difference(exact, found)
    # i2t, three queries: one loses R@1, one gains R@10. t2i, two: one loses R@5 and R@10, one gains all three.
    assert hits.lost == pytest.approx(100 / 3 + 2 * 50)
    assert hits.gained == pytest.approx(100 / 3 + 3 * 50)
    assert hits.loss == pytest.approx(exact.retrieval().rsum - found.retrieval().rsum)


def test_sizes_of_other_sets():
    chosen = Calibration(0.1, Size(50, 250), 0.1, 0.0, 0.3, 500, 2500)
    assert chosen.size_for(500, 2500) == (50, 250)
    assert chosen.size_for(1000, 5000) == (100, 500)
    assert chosen.size_for(100, 500) == (50, 250)  # not shorter
    assert chosen.size_for(20, 100) == (20, 100)
