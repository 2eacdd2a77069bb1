import math

import pytest
import torch

from truepair.methods.plain import Plain


def triplet_by_loops(similarity, margin, hardest):
    s, n = similarity.tolist(), len(similarity)
    losses = []
    for i in range(n):
        texts = [max(0, margin + s[i][j] - s[i][i]) for j in range(n) if j != i]
        images = [max(0, margin + s[j][i] - s[i][i]) for j in range(n) if j != i]
        losses.append(max(texts) + max(images) if hardest else (sum(texts) + sum(images)) / n)
    return losses


def info_nce_by_loops(similarity, temperature):
    s, n = similarity.tolist(), len(similarity)
    losses = []
    for i in range(n):
        row = sum(math.exp(s[i][j] / temperature) for j in range(n))
        column = sum(math.exp(s[j][i] / temperature) for j in range(n))
        own = math.exp(s[i][i] / temperature)
        losses.append(-math.log(own / row) - math.log(own / column))
    return losses


@pytest.mark.parametrize("stage", ["warming_up", "later"])
def test_the_triplet_loss_takes_the_mean_first_and_the_hardest_later(batch, make_ledger, stage, request):
    clock = request.getfixturevalue(stage)
    method = Plain(objective="triplet", margin=0.3)
    loss = method.loss(batch.step(clock), make_ledger())
    expected = triplet_by_loops(batch.similarity, 0.3, hardest=not clock.warming_up)
    assert loss.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("stage", ["warming_up", "later"])
def test_info_nce_is_the_cross_entropy_of_both_directions(batch, make_ledger, stage, request):
    loss = Plain(temperature=0.2).loss(batch.step(request.getfixturevalue(stage)), make_ledger())
    assert loss.tolist() == pytest.approx(info_nce_by_loops(batch.similarity, 0.2), rel=1e-4)


@pytest.mark.parametrize("stage", ["warming_up", "later"])
def test_pairs_count_as_much_as_the_prior_believes_them(batch, make_ledger, stage, request):
    ledger = make_ledger(20)
    ledger.prior = torch.linspace(0, 1, 20)
    pairs = torch.tensor([3, 19, 0, 7, 8, 4, 12, 5, 6])
    step = batch.step(request.getfixturevalue(stage), pairs)
    assert torch.equal(Plain().weight(step, ledger), ledger.prior[pairs])


def test_it_neither_divides_nor_touches_beliefs(batch, make_ledger, later):
    ledger = make_ledger()
    before = {name: column.clone() for name, column in ledger.columns().items()}
    Plain().loss(batch.step(later), ledger)
    assert all(torch.equal(column, before[name]) for name, column in ledger.columns().items())
    assert not Plain().wants_sweep(later)
    (stream,) = Plain().streams(ledger, 0, later)
    assert stream.pairs.tolist() == list(range(9))
