import cmath
import math

import pytest
import torch

from truepair.beliefs.ledger import Ledger, Partition
from truepair.methods.gsl import GSL

CLEAN, NOISY = int(Partition.CLEAN), int(Partition.NOISY)


# The supplement's Algorithm 1 and the equations it names, written out


def spectrum(vector):
    """Amplitudes, then phases, of the half of the transform that says everything."""
    d = len(vector)
    half = [
        sum(x * cmath.exp(-2j * math.pi * k * t / d) for t, x in enumerate(vector)) for k in range(d // 2 + 1)
    ]
    # What is real by symmetry carries rounding errors here.
    half = [complex(z.real, 0.0) if abs(z.imag) < 1e-12 else z for z in half]
    return [abs(z) for z in half] + [cmath.phase(z) for z in half]


def centred(rows, anchors):
    mean = [sum(column) / len(anchors) for column in zip(*anchors, strict=True)]
    return [[x - m for x, m in zip(row, mean, strict=True)] for row in rows]


def cosine(a, b):
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms


def expected_labels(images, texts, clean, *, foa2=True, form="folded"):
    anchors = [i for i in range(len(clean)) if clean[i]]
    if foa2:
        images, texts = [spectrum(row) for row in images], [spectrum(row) for row in texts]
        images = centred(images, [images[a] for a in anchors])
        texts = centred(texts, [texts[a] for a in anchors])
    labels = []
    for n in range(len(clean)):
        if clean[n]:
            labels.append(1.0)
            continue
        a1, a2 = sorted(anchors, key=lambda a, n=n: -cosine(images[n], images[a]))[:2]
        s = [cosine(images[n], images[a1]), cosine(images[n], images[a2])]
        t = [cosine(texts[n], texts[a1]), cosine(texts[n], texts[a2])]
        ratio = (s[0] / s[1]) / (t[0] / t[1])
        if form == "raw":
            labels.append((ratio + 1 / ratio) / 2)
        else:
            labels.append(min(ratio, 1 / ratio) if min(s + t) > 0 else 0.0)
    return labels


def expected_loss(batch, margins, zeta=1.0, eta=0.1, scale="mean"):
    """Eq. 16 of every pair: L_w, Eq. 13 and Eq. 15."""
    s, n = batch.similarity.double().tolist(), len(batch)
    images, texts = batch.images.vectors.double().tolist(), batch.texts.vectors.double().tolist()
    losses = []
    for i in range(n):
        triplet = max(max(0, margins[i] - s[i][i] + s[i][j]) for j in range(n) if j != i)
        triplet += max(max(0, margins[i] - s[i][i] + s[j][i]) for j in range(n) if j != i)
        intra = sum((cosine(images[i], images[j]) - cosine(texts[i], texts[j])) ** 2 for j in range(n))
        inter = -sum((s[i][j] - s[j][i]) ** 2 for j in range(n))
        share = n if scale == "mean" else 1
        losses.append(triplet + zeta * intra / share + eta * inter / share)
    return losses


def margin_of(label):
    return 0.2 * (10**label - 1) / 9


@pytest.fixture
def ledger(make_ledger):
    """The other network believes five of the nine pairs, this one believes others."""
    ledger = make_ledger()
    ledger.partition[1] = torch.tensor([CLEAN, NOISY] * 4 + [CLEAN], dtype=torch.uint8)
    ledger.partition[0] = NOISY
    return ledger


CLEAN_PAIRS = [True, False] * 4 + [True]


def features(batch, images="learned"):
    left = batch.images.vectors if images == "learned" else batch.raw
    return left.double().tolist(), batch.texts.vectors.double().tolist()


@pytest.mark.parametrize("foa2", [True, False])
@pytest.mark.parametrize("images", ["learned", "raw"])
@pytest.mark.parametrize("seed", range(4))
def test_noisy_pairs_get_labels_from_clean_anchors(make_batch, ledger, later, foa2, images, seed):
    batch = make_batch(seed=seed)
    expected = expected_labels(*features(batch, images), CLEAN_PAIRS, foa2=foa2)
    loss = GSL(foa2=foa2, anchor_images=images).loss(batch.step(later), ledger)
    assert ledger.correspondence[0].tolist() == pytest.approx(expected, abs=2e-4)
    assert loss.tolist() == pytest.approx(expected_loss(batch, [margin_of(y) for y in expected]), abs=2e-4)


def test_the_raw_form_is_printed_and_at_least_1(make_batch, ledger, later):
    # Vectors in one corner of the space: all cosines are positive.
    batch = make_batch()
    images, texts = (codes.vectors.abs() + 0.5 for codes in (batch.images, batch.texts))
    batch.images.vectors.copy_(images)
    batch.texts.vectors.copy_(texts)
    expected = expected_labels(*features(batch), CLEAN_PAIRS, foa2=False, form="raw")
    GSL(foa2=False, label_form="raw").loss(batch.step(later), ledger)
    assert ledger.correspondence[0].tolist() == pytest.approx(expected, rel=1e-3)
    assert min(expected) >= 1
    assert max(expected) > 1


def test_agreeing_geometry_gives_full_labels(make_batch, ledger, later):
    batch = make_batch()
    vectors = batch.images.vectors.abs() + 0.1
    batch.images.vectors.copy_(vectors)
    batch.texts.vectors.copy_(vectors)
    GSL(foa2=False).loss(batch.step(later), ledger)
    torch.testing.assert_close(ledger.correspondence[0], torch.ones(9))


def test_without_galc_noisy_pairs_have_label_0(batch, ledger, later):
    loss = GSL(galc=False).loss(batch.step(later), ledger)
    assert ledger.correspondence[0].tolist() == [float(clean) for clean in CLEAN_PAIRS]
    assert loss.tolist() == pytest.approx(
        expected_loss(batch, [0.2 * clean for clean in CLEAN_PAIRS]), abs=1e-5
    )


def test_without_sct_the_triplet_loss_is_left(batch, ledger, later):
    without = GSL(sct=False)
    loss = without.loss(batch.step(later), ledger)
    margins = [margin_of(y) for y in ledger.correspondence[0].tolist()]
    assert loss.tolist() == pytest.approx(expected_loss(batch, margins, zeta=0, eta=0), abs=1e-5)
    swept = without.sweep(batch.scores())["loss"]
    assert swept.tolist() == pytest.approx(expected_loss(batch, [0.2] * 9, zeta=0, eta=0), abs=1e-5)


@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_the_division_looks_at_the_constrained_loss(batch, scale):
    swept = GSL(structure_scale=scale, intra_weight=0.7, inter_weight=0.3).sweep(batch.scores())["loss"]
    assert swept.tolist() == pytest.approx(expected_loss(batch, [0.2] * 9, 0.7, 0.3, scale), rel=1e-4)


def test_the_warm_up_takes_the_mean_of_all_negatives(batch, ledger, warming_up):
    s = batch.similarity.double().tolist()
    expected = [
        sum(max(0, 0.2 - s[i][i] + s[i][j]) + max(0, 0.2 - s[i][i] + s[j][i]) for j in range(9) if j != i) / 9
        for i in range(9)
    ]
    assert GSL().loss(batch.step(warming_up), ledger).tolist() == pytest.approx(expected, abs=1e-5)
    hardest = GSL(warmup_negatives="hardest").loss(batch.step(warming_up), ledger)
    assert hardest.tolist() == pytest.approx(expected_loss(batch, [0.2] * 9, 0, 0), abs=1e-5)


def test_the_division_parts_each_networks_losses(make_sweep, later):
    ledger = Ledger.blank(2, 60)
    losses = torch.cat([torch.rand(30) / 5, 1 - torch.rand(30) / 5])
    GSL().divide([make_sweep(losses), make_sweep(losses.flip(0))], ledger, None, later)
    first = torch.arange(60) < 30
    assert torch.equal(ledger.partition[0] == CLEAN, first)
    assert torch.equal(ledger.partition[1] == CLEAN, ~first)


@pytest.mark.parametrize("clean", [[], [3]])
def test_a_batch_with_fewer_than_two_anchors_trusts_no_noisy_pair(batch, ledger, later, clean):
    ledger.partition[1] = NOISY
    ledger.partition[1, clean] = CLEAN
    loss = GSL().loss(batch.step(later), ledger)
    assert bool(loss.isfinite().all())
    assert ledger.correspondence[0].tolist() == [float(i in clean) for i in range(9)]


def test_remembered_anchors_serve_later_batches(batch, make_batch, ledger, later):
    method = GSL(anchor_memory=7, foa2=False)
    method.loss(batch.step(later), ledger)
    assert ledger.notes["anchor_images0"].shape == (5, 8)
    second = make_batch(seed=5)
    method.loss(second.step(later), ledger)
    assert ledger.notes["anchor_images0"].shape == (7, 8)
    torch.testing.assert_close(
        ledger.notes["anchor_texts0"][-5:], second.texts.vectors[torch.tensor(CLEAN_PAIRS)]
    )
    # Both anchors of a batch without any clean pair come from memory.
    ledger.partition[1] = NOISY
    third = make_batch(seed=6)
    remembered = {side: ledger.notes[f"anchor_{side}0"].double().tolist() for side in ("images", "texts")}
    images, texts = features(third)
    known = [False] * 9 + [True] * 7
    expected = expected_labels(images + remembered["images"], texts + remembered["texts"], known, foa2=False)
    method.loss(third.step(later), ledger)
    assert ledger.correspondence[0].tolist() == pytest.approx(expected[:9], abs=1e-4)


def test_a_belief_belongs_to_the_pair_not_to_its_place(batch, make_ledger, later):
    order = torch.tensor([4, 8, 0, 2, 7, 1, 6, 3, 5])
    pairs = torch.tensor([10, 3, 7, 1, 19, 0, 5, 2, 12])
    straight, shuffled = make_ledger(20), make_ledger(20)
    loss = GSL().loss(batch.step(later, pairs), straight)
    moved = GSL().loss(batch.shuffled(order).step(later, pairs[order]), shuffled)
    torch.testing.assert_close(moved, loss[order], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shuffled.correspondence, straight.correspondence, rtol=1e-4, atol=1e-5)
