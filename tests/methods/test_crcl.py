import math

import pytest
import torch

from truepair.beliefs.ledger import Ledger
from truepair.methods.crcl import CRCL
from truepair.training.schedule import Schedule, clocks

# The paper, written out


def probabilities(similarity, tau):
    s, n = similarity.double().tolist(), len(similarity)
    rows = [sum(math.exp(s[i][k] / tau) for k in range(n)) for i in range(n)]
    columns = [sum(math.exp(s[k][j] / tau) for k in range(n)) for j in range(n)]
    i2t = [[math.exp(s[i][j] / tau) / rows[i] for j in range(n)] for i in range(n)]
    t2i = [[math.exp(s[i][j] / tau) / columns[j] for j in range(n)] for i in range(n)]
    return i2t, t2i


def active_complementary(i2t, t2i, label, weight, active=True, complementary=True):
    n, losses = len(label), []
    for i in range(n):
        q = 1 - label[i]
        direct = -label[i] * (math.log(i2t[i][i]) + math.log(t2i[i][i]))
        images = sum(math.tan(i2t[i][j]) for j in range(n) if j != i)
        images /= sum(math.tan(i2t[i][k]) for k in range(n)) ** q
        texts = sum(math.tan(t2i[j][i]) for j in range(n) if j != i)
        texts /= sum(math.tan(t2i[k][i]) for k in range(n)) ** q
        losses.append(active * direct + complementary * weight * (images + texts))
    return losses


@pytest.mark.parametrize("switches", [{}, {"active": False}, {"complementary": False}])
def test_the_loss_is_equation_8_with_the_label_of_equation_12(batch, make_ledger, switches):
    (*_, clock) = clocks(Schedule(warmup=0, pieces=(4,)))
    ledger = make_ledger(networks=1)
    i2t, t2i = probabilities(batch.similarity, 0.3)
    before = ledger.correspondence[0].tolist()
    labels = [0.8 * before[i] + 0.2 * (i2t[i][i] + t2i[i][i]) / 2 for i in range(9)]
    labels = [0 if label < 0.1 else label for label in labels]
    loss = CRCL(temperature=0.3, **switches).loss(batch.step(clock), ledger)
    assert loss.tolist() == pytest.approx(active_complementary(i2t, t2i, labels, 5, **switches), rel=1e-4)
    assert ledger.correspondence[0].tolist() == pytest.approx(labels, abs=1e-5)


def test_labels_and_losses_equal_the_published_sequence(oracle, oracle_settings, make_batch):
    recorded = {name: torch.as_tensor(value) for name, value in oracle("crcl").items()}
    settings = oracle_settings("crcl")
    pairs = recorded["text_ids"]
    method = CRCL(
        temperature=settings["tau"],
        momentum=settings["alpha"],
        frozen_epochs=settings["warm_epoch"],
        sure_noise_below=settings["confident_filter"],
    )
    ledger = Ledger.blank(1, settings["n_store"])
    for clock in clocks(Schedule(warmup=0, pieces=(4, 4))):
        here = clock.piece, clock.epoch_in_piece
        batch = make_batch(len(pairs))
        batch.similarity = recorded["sims"][here]
        batch.__post_init__()
        loss = method.loss(batch.step(clock, pairs), ledger).mean()
        torch.testing.assert_close(loss, recorded["total_loss"][here], rtol=1e-5, atol=1e-6)
        loss.backward()
        torch.testing.assert_close(
            batch.matcher.matrix.grad, recorded["grad_sims"][here], rtol=1e-4, atol=1e-6
        )
        torch.testing.assert_close(
            ledger.correspondence[0], recorded["label_store_full_after"][here], rtol=1e-5, atol=1e-6
        )


def test_without_correction_labels_stay_as_they_were(batch, make_ledger, later):
    ledger = make_ledger(networks=1)
    before = ledger.correspondence.clone()
    loss = CRCL(temperature=0.3, correction=False).loss(batch.step(later), ledger)
    assert torch.equal(ledger.correspondence, before)
    expected = active_complementary(*probabilities(batch.similarity, 0.3), before[0].tolist(), 5)
    assert loss.tolist() == pytest.approx(expected, rel=1e-4)


def test_freezing_may_be_counted_in_steps(batch):
    # Ten steps an epoch: 25 of them take three epochs.
    method, ledger = CRCL(frozen_epochs=1, frozen_steps=25), Ledger.blank(1, 9)
    frozen = []
    for clock in clocks(Schedule(warmup=0, pieces=(2, 6))):
        if clock.piece == 1:
            before = ledger.correspondence.clone()
            method.loss(batch.step(clock.at(0, 10)), ledger)
            frozen.append(torch.equal(ledger.correspondence, before))
    assert frozen == [True, True, True, False, False, False]


def test_labels_start_from_the_prior(batch, later):
    ledger = Ledger.blank(1, 9, torch.full((9,), 0.5))
    CRCL().loss(batch.step(later), ledger)
    assert bool((ledger.correspondence <= 0.6 + 1e-6).all())


def test_a_belief_belongs_to_the_pair_not_to_its_place(batch, make_ledger, later):
    order = torch.tensor([4, 8, 0, 2, 7, 1, 6, 3, 5])
    pairs = torch.tensor([10, 3, 7, 1, 19, 0, 5, 2, 12])
    straight, shuffled = make_ledger(20, 1), make_ledger(20, 1)
    loss = CRCL().loss(batch.step(later, pairs), straight)
    moved = CRCL().loss(batch.shuffled(order).step(later, pairs[order]), shuffled)
    torch.testing.assert_close(moved, loss[order])
    torch.testing.assert_close(shuffled.correspondence, straight.correspondence)
    untouched = [row for row in range(20) if row not in pairs.tolist()]
    assert torch.equal(straight.correspondence[0, untouched], make_ledger(20, 1).correspondence[0, untouched])
