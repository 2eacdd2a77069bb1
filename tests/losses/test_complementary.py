import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from truepair.losses.complementary import (
    active_complementary,
    active_loss,
    biased_complementary,
    robust_complementary_loss,
)
from truepair.losses.infonce import matching_probabilities

READINGS = ["product", "rows", "weighted", "uniform"]


def similarities(low=0.0, high=1.0):
    sizes = st.integers(2, 7).map(lambda n: (n, n))
    return hnp.arrays(np.float64, sizes, elements=st.floats(low, high, width=32)).map(torch.as_tensor)


@pytest.fixture
def scores():
    return torch.rand(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


# CRCL


@pytest.mark.parametrize("piece", [0, 1])
@pytest.mark.parametrize("epoch", range(4))
def test_crcl_equals_the_published_numbers(oracle, oracle_settings, piece, epoch):
    recorded, settings = oracle("crcl"), oracle_settings("crcl")
    similarity = torch.as_tensor(recorded["sims"][piece, epoch]).requires_grad_()
    i2t, t2i = matching_probabilities(similarity, settings["tau"])
    # The loss uses the label that the step stores, but 1 in the first piece's frozen epochs.
    label = torch.as_tensor(recorded["label_store_after"][piece, epoch])
    if piece == 0 and epoch < settings["warm_epoch"]:
        label = torch.ones_like(label)
    positive, negative = active_loss(i2t, t2i, label), robust_complementary_loss(i2t, t2i, 1 - label)
    unweighted = active_loss(i2t, t2i, torch.ones_like(label))
    loss = active_complementary(i2t, t2i, label, settings["negative_factor"]).mean()
    loss.backward()

    def close(ours, name):
        torch.testing.assert_close(
            ours.detach(), torch.as_tensor(recorded[name][piece, epoch]), rtol=1e-5, atol=1e-6
        )

    close(loss, "total_loss")
    close(positive.mean(), "loss_positive_weighted")
    close(unweighted.mean(), "mean_positive_term")
    close(negative.mean(), "mean_negative_term")
    close(5 * negative.mean(), "loss_negative_scaled")
    close(similarity.grad, "grad_sims")


def test_crcl_equals_the_equations_written_as_loops(scores):
    temperature, weight, n = 0.2, 3.0, len(scores)
    label = torch.linspace(0, 1, n, dtype=torch.float64)
    ours = active_complementary(*matching_probabilities(scores, temperature), label, weight)
    s = scores.tolist()
    for i in range(n):
        row = [math.exp(s[i][j] / temperature) for j in range(n)]
        column = [math.exp(s[j][i] / temperature) for j in range(n)]
        y, expected = float(label[i]), 0.0
        for answers in (row, column):
            p = [a / sum(answers) for a in answers]
            expected -= y * math.log(p[i])
            wrong = sum(math.tan(p[j]) for j in range(n) if j != i)
            expected += weight * wrong / sum(math.tan(value) for value in p) ** (1 - y)
        assert float(ours[i]) == pytest.approx(expected, rel=1e-10)


@given(similarities(-1, 1), st.floats(0, 1))
def test_crcl_is_positive_and_finite_for_any_label(similarity, label):
    loss = active_complementary(
        *matching_probabilities(similarity, 0.05), torch.full((len(similarity),), label)
    )
    assert loss.isfinite().all()
    assert (loss >= 0).all()


def test_a_pair_that_is_surely_noise_gets_no_active_loss(scores):
    i2t, t2i = matching_probabilities(scores, 0.05)
    assert active_loss(i2t, t2i, torch.zeros(6)).abs().max() == 0
    # exponent 1 divides by the whole: the complementary loss of each direction is below 1
    assert (robust_complementary_loss(i2t, t2i, 1.0) < 2).all()


def test_crcl_survives_awkward_similarities(awkward):
    label = torch.linspace(0, 1, len(awkward))
    loss = active_complementary(*matching_probabilities(awkward, 0.05), label)
    loss.mean().backward()
    assert loss.isfinite().all()
    assert awkward.grad.isfinite().all()


# SREM


def selection_by_loops(s, i, beta, b, with_own):
    """Eq. 10 for row i, all columns; with_own: whether the pair's own column is among the answers."""
    n = len(s)
    below = 1 + sum(math.exp(beta * (s[i][k] - b)) for k in range(n) if k != i)
    return {j: math.exp(beta * (s[i][j] - b)) / below for j in range(n) if with_own or j != i}


def softmax_by_loops(values):
    total = sum(math.exp(v) for v in values.values())
    return {j: math.exp(v) / total for j, v in values.items()}


def complementary_by_loops(similarity, clean, beta, b, reading):
    s, n = similarity.tolist(), len(similarity)
    hardest = [max((j for j in range(n) if j != i), key=lambda j, i=i: s[i][j]) for i in range(n)]
    kept = [[j for j in range(n) if j != i and not (clean[i] and j == hardest[i])] for i in range(n)]
    if reading == "uniform":
        return [sum(-math.log(1 - s[i][j]) for j in kept[i]) / len(kept[i]) for i in range(n)]
    if reading == "weighted":
        expected = []
        for i in range(n):
            chance = selection_by_loops(s, i, beta, b, with_own=False)
            share = softmax_by_loops({j: chance[j] for j in kept[i]})
            expected.append(sum(-share[j] * math.log(1 - s[i][j]) for j in kept[i]))
        return expected
    q = []
    for i in range(n):
        chance = selection_by_loops(s, i, beta, b, with_own=True)
        q.append(softmax_by_loops({j: chance[j] for j in [*kept[i], i]}))
    expected = []
    for i in range(n):
        total = 0.0
        for j in range(n):
            if j == i:
                continue
            if reading == "product":
                mixed = sum(q[k].get(i, 0.0) * s[k][j] for k in range(n))
            else:
                mixed = sum(s[i][k] * q[k].get(j, 0.0) for k in range(n))
            total -= math.log(1 - mixed)
        expected.append(total / (n - 1))
    return expected


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("clean", [[False] * 6, [True, False, True, True, False, True]])
def test_cmbcl_equals_the_equations_written_as_loops(scores, reading, clean):
    similarity = scores * 0.1  # mixtures of rows may add up to more than 1 otherwise
    ours = biased_complementary(similarity, torch.tensor(clean), steepness=5.0, base=0.05, reading=reading)
    expected = complementary_by_loops(similarity, clean, 5.0, 0.05, reading)
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reading", READINGS)
@given(similarity=similarities(-1, 1), seed=st.integers(0, 100))
def test_cmbcl_does_not_depend_on_the_order_of_the_batch(reading, similarity, seed):
    n = len(similarity)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    clean = torch.arange(n) % 2 == 0
    straight = biased_complementary(similarity, clean, reading=reading)
    moved = biased_complementary(similarity[shuffled][:, shuffled], clean[shuffled], reading=reading)
    torch.testing.assert_close(moved, straight[shuffled])


@pytest.mark.parametrize("reading", ["weighted", "uniform"])
def test_cmbcl_pushes_only_negatives_in_the_readings_that_do_not_mix(scores, reading):
    similarity = scores.clone().requires_grad_()
    biased_complementary(similarity, reading=reading).mean().backward()
    assert similarity.grad.diagonal().abs().max() == 0
    assert (similarity.grad[~torch.eye(6, dtype=torch.bool)] > 0).all()


def test_cmbcl_as_printed_pushes_matched_pairs_as_hard_as_others_until_they_stand_out():
    """Why the reading is an option: the printed product cannot tell matched pairs from others at first."""
    flat = torch.full((6, 6), 0.1, dtype=torch.float64, requires_grad=True)
    biased_complementary(flat, steepness=50.0).mean().backward()
    assert flat.grad.diagonal().mean() >= flat.grad[~torch.eye(6, dtype=torch.bool)].mean() - 1e-12
    settled = (torch.eye(6, dtype=torch.float64) * 0.8 + 0.1).requires_grad_()
    biased_complementary(settled, steepness=50.0).mean().backward()
    assert settled.grad.diagonal().abs().max() < 1e-6 * settled.grad[0, 1].abs()


def test_the_hardest_negative_of_a_clean_row_is_left_to_the_hinge(scores):
    similarity = scores.clone().requires_grad_()
    biased_complementary(similarity, torch.ones(6, dtype=torch.bool), reading="weighted").mean().backward()
    others = scores.masked_fill(torch.eye(6, dtype=torch.bool), -1)
    assert similarity.grad.gather(1, others.argmax(1, keepdim=True)).abs().max() == 0


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("all_clean", [False, True])
def test_cmbcl_survives_awkward_similarities(awkward, reading, all_clean):
    loss = biased_complementary(
        awkward, torch.full((len(awkward),), all_clean), steepness=50.0, reading=reading
    )
    loss.mean().backward()
    assert loss.isfinite().all()
    assert awkward.grad.isfinite().all()


def test_a_saturated_negative_still_has_a_gradient():
    similarity = torch.ones(4, 4, requires_grad=True)
    biased_complementary(similarity, reading="uniform").mean().backward()
    assert (similarity.grad[~torch.eye(4, dtype=torch.bool)] > 1).all()
