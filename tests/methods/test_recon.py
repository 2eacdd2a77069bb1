import math

import numpy as np
import pytest
import torch

from truepair.beliefs.ledger import Ledger, Partition
from truepair.errors import TruepairError
from truepair.methods.recon import ReCon

CLEAN, NOISY, LOCAL = int(Partition.CLEAN), int(Partition.NOISY), int(Partition.LOCAL)
MIXED = torch.tensor([CLEAN, NOISY, LOCAL] * 3, dtype=torch.uint8)


# The paper, written out


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def softmax(row):
    exponents = [math.exp(value) for value in row]
    return [value / sum(exponents) for value in exponents]


def relations(items, temperature):
    return [softmax([cosine(a, b) / temperature for b in items]) for a in items]


def gap_to_proxy(anchor, other, temperature):
    """Eq. 3-4 with this modality as the anchor: both directions of the divergence, a mean over the rows."""
    own = relations(anchor, temperature)
    nearest = [max(range(len(other)), key=lambda j, a=a: cosine(a, other[j])) for a in anchor]
    proxy = relations([other[j] for j in nearest], temperature)
    gap = 0.0
    for own_row, proxy_row in zip(own, proxy, strict=True):
        for p, q in zip(own_row, proxy_row, strict=True):
            gap += p * math.log(p / q) + q * math.log(q / p)
    return gap / len(anchor)


def intra_modal(batch, temperature):
    losses = []
    for i in range(len(batch)):
        regions = batch.images.regions[i][batch.images.mask[i]].double().numpy()
        words = batch.texts.words[i, : batch.texts.lengths[i]].double().numpy()
        losses.append(gap_to_proxy(regions, words, temperature) + gap_to_proxy(words, regions, temperature))
    return losses


def cross_modal(batch, temperature):
    """L_CM and the mean probability of Eq. 10."""
    s, n = batch.similarity.double() / temperature, len(batch)
    losses, agreement = [], []
    for i in range(n):
        v2t = math.exp(s[i, i]) / sum(math.exp(s[i, j]) for j in range(n))
        t2v = math.exp(s[i, i]) / sum(math.exp(s[j, i]) for j in range(n))
        losses.append(-math.log(v2t) - math.log(t2v))
        agreement.append((v2t + t2v) / 2)
    return losses, agreement


def discrepancy(loss):
    return math.log(1 + loss) / (1 + math.log(1 + loss))


def expected_losses(batch, labels, partition, temperature, *, relations=True, penalty=True):
    """Eq. 13-15."""
    cross, within = cross_modal(batch, 0.1)[0], intra_modal(batch, temperature)
    losses = []
    for i, part in enumerate(partition.tolist()):
        if part == NOISY:
            losses.append(labels[i] * cross[i])
            continue
        weight = math.exp(discrepancy(within[i]) / 0.1) if part == LOCAL and penalty else 1
        losses.append(5 * cross[i] + (within[i] / weight if relations else 0))
    return losses


@pytest.fixture
def ledger(make_ledger):
    ledger = make_ledger(networks=1)
    ledger.partition[0] = MIXED
    return ledger


@pytest.mark.parametrize("switches", [{}, {"relations": False}, {"penalty": False}])
def test_each_part_has_its_own_loss(batch, ledger, later, switches):
    before, agreement = ledger.correspondence[0].tolist(), cross_modal(batch, 0.1)[1]
    labels = [0.6 * before[i] + 0.4 * agreement[i] if MIXED[i] == NOISY else 1 for i in range(9)]
    loss = ReCon(relation_temperature=0.5, **switches).loss(batch.step(later), ledger)
    assert loss.tolist() == pytest.approx(expected_losses(batch, labels, MIXED, 0.5, **switches), rel=1e-4)
    assert ledger.correspondence[0].tolist() == pytest.approx(labels, abs=1e-6)


def test_the_warm_up_is_the_triplet_loss_over_all_negatives(batch, ledger, warming_up):
    s = batch.similarity.double().tolist()
    expected = [
        sum(max(0, 0.2 - s[i][i] + s[i][j]) + max(0, 0.2 - s[i][i] + s[j][i]) for j in range(9) if j != i)
        for i in range(9)
    ]
    assert ReCon().loss(batch.step(warming_up), ledger).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_sweep_finds_both_losses(batch):
    swept = ReCon(relation_temperature=0.5).sweep(batch.scores())
    assert swept["loss"].tolist() == pytest.approx(cross_modal(batch, 0.1)[0], rel=1e-4)
    expected = [discrepancy(loss) for loss in intra_modal(batch, 0.5)]
    assert swept["discrepancy"].tolist() == pytest.approx(expected, rel=1e-4)


def test_the_division_has_three_parts(make_sweep, later):
    low, high = torch.rand(20) / 10, 1 - torch.rand(20) / 10
    y = torch.full((40,), 0.3)
    y[[0, 5, 30]] = torch.tensor([0.5, 0.9, 0.9])
    sweep = make_sweep(torch.cat([low, high]), discrepancy=y)
    ledger = Ledger.blank(1, 40)
    ReCon().divide([sweep], ledger, None, later)
    local = [0, 5]
    expected = [LOCAL if i in local else CLEAN if i < 20 else NOISY for i in range(40)]
    assert ledger.partition[0].tolist() == expected
    assert torch.equal(ledger.loss[0], sweep.values["loss"])
    ReCon(true_positives=False).divide([sweep], ledger, None, later)
    assert ledger.partition[0].tolist() == [CLEAN] * 20 + [NOISY] * 20
    ReCon(discrepancy_threshold=0.95).divide([sweep], ledger, lambda _: np.linspace(0, 1, 40), later)
    assert ledger.partition[0].tolist() == [NOISY] * 20 + [CLEAN] * 20


def test_noisy_pairs_train_no_relations(batch, ledger, later):
    ledger.partition[0] = NOISY
    ledger.correspondence[0] = 0
    batch.images.regions.requires_grad_()
    ReCon().loss(batch.step(later), ledger).sum().backward()
    assert batch.images.regions.grad is None or not batch.images.regions.grad.any()


def test_a_matcher_without_parts_is_refused(make_batch, ledger, later):
    batch = make_batch(parts=False)
    with pytest.raises(TruepairError, match=r"one vector.*sgr"):
        ReCon().loss(batch.step(later), ledger)
    with pytest.raises(TruepairError, match="one vector"):
        ReCon().sweep(batch.scores())


def test_a_belief_belongs_to_the_pair_not_to_its_place(batch, make_ledger, later):
    order = torch.tensor([4, 8, 0, 2, 7, 1, 6, 3, 5])
    pairs = torch.tensor([10, 3, 7, 1, 19, 0, 5, 2, 12])
    straight, shuffled = make_ledger(20, 1), make_ledger(20, 1)
    loss = ReCon().loss(batch.step(later, pairs), straight)
    moved = ReCon().loss(batch.shuffled(order).step(later, pairs[order]), shuffled)
    torch.testing.assert_close(moved, loss[order])
    torch.testing.assert_close(shuffled.correspondence, straight.correspondence)
