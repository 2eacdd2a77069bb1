import numpy as np
import pytest
import torch

from truepair.beliefs.ledger import Ledger, Partition
from truepair.methods.ncr import NCR
from truepair.training.schedule import Clock

CLEAN, NOISY = int(Partition.CLEAN), int(Partition.NOISY)


# The paper, written out: P, y, alpha and the loss.


def prediction(similarity, margin=0.2):
    s, n = similarity.double().tolist(), len(similarity)
    raw = []
    for i in range(n):
        text = sum(max(0, margin - s[i][i] + s[i][j]) for j in range(n) if j != i) / n
        image = sum(max(0, margin - s[i][i] + s[j][i]) for j in range(n) if j != i) / n
        raw.append(min(max(margin - (text + image) / 2, 0), margin))
    top = sorted(raw)[-(n // 10 + 1) :]
    return [min(value / (sum(top) / len(top)), 1) for value in raw]


def margin_of(label, form="exponential", alpha=0.2, base=10):
    return (
        alpha
        * {
            "exponential": (base**label - 1) / (base - 1),
            "linear": label,
            "sine": (np.sin(np.pi * label - np.pi / 2) + 1) / 2,
            "hard": 1,
        }[form]
    )


def soft_triplet(similarity, margins):
    s, n = similarity.double().tolist(), len(similarity)
    losses = []
    for i in range(n):
        text = max(max(0, margins[i] - s[i][i] + s[i][j]) for j in range(n) if j != i)
        image = max(max(0, margins[i] - s[i][i] + s[j][i]) for j in range(n) if j != i)
        losses.append(text + image)
    return losses


@pytest.mark.parametrize("form", ["exponential", "linear", "sine", "hard"])
def test_clean_pairs_mix_the_others_belief_with_the_own_prediction(batch, make_ledger, later, form):
    ledger = make_ledger()
    own = prediction(batch.similarity)
    w = ledger.clean[1].tolist()
    labels = [w[i] + (1 - w[i]) * own[i] for i in range(9)]
    loss = NCR(soft_margin=form).loss(batch.step(later, network=0, stream="clean"), ledger)
    assert loss.tolist() == pytest.approx(
        soft_triplet(batch.similarity, [margin_of(y, form) for y in labels]), abs=1e-5
    )
    assert ledger.correspondence[0].tolist() == pytest.approx(labels, abs=1e-5)


def test_noisy_pairs_take_the_mean_of_both_predictions(batch, make_ledger, later):
    ledger = make_ledger()
    kept = ledger.correspondence[0].clone()
    both = zip(prediction(batch.similarity), prediction(batch.peer), strict=True)
    labels = [(a + b) / 2 for a, b in both]
    loss = NCR().loss(batch.step(later, network=1, stream="noisy"), ledger)
    assert loss.tolist() == pytest.approx(
        soft_triplet(batch.similarity, [margin_of(y) for y in labels]), abs=1e-5
    )
    assert ledger.correspondence[1].tolist() == pytest.approx(labels, abs=1e-5)
    assert torch.equal(ledger.correspondence[0], kept)


# The published numbers


@pytest.fixture(params=["b8", "b32"])
def recorded(request, oracle):
    arrays = {name: torch.as_tensor(value) for name, value in oracle("ncr_loss").items()}
    return {name.removeprefix(f"{request.param}_"): value for name, value in arrays.items()}


def published_step(recorded, make_batch, later, stream, **values):
    batch = make_batch(len(recorded["sims"]))
    batch.similarity, batch.peer = recorded["sims"], recorded["sims_peer"]
    batch.__post_init__()
    ledger = Ledger.blank(2, len(batch))
    ledger.clean[1] = recorded["clean_prob"][:, 0]
    step = batch.step(later, stream=stream)
    loss = NCR(**values).loss(step, ledger)
    return loss, ledger, batch.matcher.matrix


def test_the_warm_up_has_the_published_loss(recorded, make_batch, warming_up):
    loss, _, _ = published_step(recorded, make_batch, warming_up, "all")
    torch.testing.assert_close(loss.sum(), recorded["warmup"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("form", "name"), [("exponential", "exponential"), ("linear", "linear"), ("sine", "sin")]
)
@pytest.mark.parametrize(("stream", "labels"), [("clean", "targetsBxB"), ("noisy", "unl")])
def test_published_labels_give_the_published_loss(recorded, make_batch, later, form, name, stream, labels):
    values = {"published_broadcast": True, "soft_margin": form}
    loss, ledger, matrix = published_step(recorded, make_batch, later, stream, **values)
    torch.testing.assert_close(loss.sum(), recorded[f"train_hard_{name}_{labels}"], rtol=1e-5, atol=1e-6)
    loss.sum().backward()
    torch.testing.assert_close(matrix.grad, recorded[f"train_hard_{name}_{labels}_grad"], atol=1e-6, rtol=0)
    published = (
        recorded["targets_labelled_BxB"].diagonal()
        if stream == "clean"
        else recorded["targets_unlabelled"][:, 0]
    )
    torch.testing.assert_close(ledger.correspondence[0], published, rtol=1e-5, atol=1e-6)


def test_the_division_has_the_published_loss(recorded, make_batch):
    batch = make_batch(len(recorded["sims"]))
    batch.similarity = recorded["sims"]
    batch.__post_init__()
    swept = NCR().sweep(batch.scores())
    torch.testing.assert_close(swept["loss"], recorded["eval_loss"], rtol=1e-5, atol=1e-6)


# Who learns from what


def test_each_network_learns_from_the_others_division(make_ledger, later):
    ledger = make_ledger(8)
    clean, noisy = NCR().streams(ledger, 0, later)
    assert (clean.name, noisy.name) == ("clean", "noisy")
    assert clean.pairs.tolist() == [i for i in range(8) if ledger.partition[1, i] == CLEAN]
    assert noisy.pairs.tolist() == [i for i in range(8) if ledger.partition[1, i] == NOISY]
    clean, noisy = NCR().streams(ledger, 1, later)
    assert clean.pairs.tolist() == [i for i in range(8) if ledger.partition[0, i] == CLEAN]


@pytest.mark.parametrize(
    ("epoch", "streams"), [(-1, ["all"]), (0, ["clean"]), (1, ["clean"]), (2, ["clean", "noisy"])]
)
def test_noisy_pairs_come_in_after_half_of_the_epochs(make_ledger, epoch, streams):
    clock = Clock(epoch=epoch + 1, piece=0, epoch_in_piece=epoch, pieces=(4,))
    assert [stream.name for stream in NCR().streams(make_ledger(), 0, clock)] == streams
    at_once = [stream.name for stream in NCR(noisy_after=0).streams(make_ledger(), 0, clock)]
    assert at_once == (["all"] if epoch < 0 else ["clean", "noisy"])


def test_the_division_is_made_of_each_networks_own_losses(make_ledger, make_sweep, later):
    ledger = Ledger.blank(2, 40)
    low_first, low_last = torch.cat([torch.rand(20) / 10, 1 - torch.rand(20) / 10]), None
    low_last = low_first.flip(0)
    NCR().divide([make_sweep(low_first), make_sweep(low_last)], ledger, None, later)
    first = torch.arange(40) < 20
    assert torch.equal(ledger.partition[0] == CLEAN, first)
    assert torch.equal(ledger.partition[1] == CLEAN, ~first)
    assert torch.equal(ledger.loss, torch.stack([low_first, low_last]))
    assert bool((ledger.clean[0, first] > 0.9).all())
    assert bool((ledger.clean[0, ~first] < 0.1).all())
    # Until a step comes by, each network's labels are what the other one believes.
    assert torch.equal(ledger.correspondence, ledger.clean.flip(0))


def test_another_division_may_take_the_place_of_the_mixture(make_sweep, later):
    ledger = Ledger.blank(2, 6)
    posterior = np.array([0.9, 0.1, 0.5, 0.51, 0.2, 1.0])
    sweep = make_sweep(torch.rand(6))
    NCR().divide([sweep, sweep], ledger, lambda _: posterior, later)
    assert ledger.partition[0].tolist() == [CLEAN, NOISY, NOISY, CLEAN, NOISY, CLEAN]
    assert ledger.clean[1].tolist() == pytest.approx(posterior)


def test_without_co_divide_every_pair_is_labelled_as_noisy_ones_are(batch, make_ledger, later):
    method = NCR(co_divide=False)
    assert not method.wants_sweep(later)
    assert NCR().wants_sweep(later)
    (stream,) = method.streams(make_ledger(), 0, later)
    assert len(stream.pairs) == 9
    loss = method.loss(batch.step(later), make_ledger())
    assert torch.equal(loss, NCR().loss(batch.step(later, stream="noisy"), make_ledger()))


def test_without_co_rectify_clean_pairs_count_fully_and_noisy_ones_not_at_all(batch, make_ledger, later):
    method = NCR(co_rectify=False)
    assert [stream.name for stream in method.streams(make_ledger(), 0, later)] == ["clean"]
    loss = method.loss(batch.step(later, stream="clean"), make_ledger())
    assert loss.tolist() == pytest.approx(soft_triplet(batch.similarity, [0.2] * 9), abs=1e-5)


def test_predictions_may_come_from_a_pass_of_their_own(batch, make_ledger, later):
    seen = []
    step = batch.step(later, stream="clean")
    object.__setattr__(step, "again", lambda: seen.append(True) or batch.scores())
    NCR(separate_predictions=True).loss(step, make_ledger())
    assert seen == [True]
    NCR().loss(step, make_ledger())
    assert seen == [True]


@pytest.mark.parametrize("stream", ["clean", "noisy"])
def test_a_belief_belongs_to_the_pair_not_to_its_place(batch, make_ledger, later, stream):
    order = torch.tensor([4, 8, 0, 2, 7, 1, 6, 3, 5])
    pairs = torch.tensor([10, 3, 7, 1, 19, 0, 5, 2, 12])
    straight, shuffled = make_ledger(20), make_ledger(20)
    loss = NCR().loss(batch.step(later, pairs, stream=stream), straight)
    moved = NCR().loss(batch.shuffled(order).step(later, pairs[order], stream=stream), shuffled)
    torch.testing.assert_close(moved, loss[order])
    torch.testing.assert_close(shuffled.correspondence, straight.correspondence)
