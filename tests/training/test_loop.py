from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import pytest
import torch

from truepair.beliefs.ledger import Ledger
from truepair.errors import TruepairError
from truepair.evaluation.encoding import evaluating
from truepair.methods.base import Method, Step, Stream
from truepair.training import loop
from truepair.training.fit import fit, resume
from truepair.training.loop import Trainer
from truepair.training.run import Run
from truepair.training.schedule import Clock
from truepair.training.scores import Scores


@dataclass(frozen=True)
class Probe(Method):
    """A method that looks around and trains nothing much."""

    name: ClassVar[str] = "probe"
    title: ClassVar[str] = "Looks around"
    networks: ClassVar[int] = 2
    seen: ClassVar[list] = []

    def loss(self, step: Step, ledger: Ledger) -> torch.Tensor:
        self.seen.append(step)
        self.look(step)
        return step.scores.similarity.diagonal() * 0

    def look(self, step: Step) -> None:
        """What a test wants to know of a step."""


@pytest.fixture
def steps(monkeypatch) -> list[tuple[int, str, list[int], Clock, float]]:
    """Every step that is taken: network, stream, pairs, clock and learning rate."""
    taken = []
    original = Trainer._step

    def recorded(self, number, stream, pairs, *batch):
        rate = self.optimisers[number].param_groups[0]["lr"]
        taken.append((number, stream, pairs.tolist(), batch[-1], rate))
        return original(self, number, stream, pairs, *batch)

    monkeypatch.setattr(Trainer, "_step", recorded)
    return taken


# What a run does


def test_a_few_epochs_learn_something(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "plain", out=tmp_path / "run", seed=1, **quick(pieces=(5,), decay_after=4))
    assert run.finished
    losses = [entry["loss"][0] for entry in run.metrics]
    assert losses[-1] < 0.8 * losses[0]
    rsums = [entry["validation"]["ensemble"]["rsum"] for entry in run.metrics]
    assert max(rsums) > rsums[0] + 50
    best = [entry["epoch"] for entry in run.metrics if entry["best"]][-1]
    assert rsums[best] == max(rsums)
    assert run.checkpoint("best").facts["position"]["epoch"] == best + 1
    assert run.checkpoint("last").facts["position"]["epoch"] == 6


def test_every_network_goes_through_all_pairs_once_an_epoch(tiny_data, tmp_path, quick, steps):
    fit(tiny_data, "ncr", out=tmp_path / "run", **quick(warmup=2, pieces=(1,)))
    for epoch in (0, 1):
        for network in (0, 1):
            taken = [
                pairs for number, _, pairs, clock, _ in steps if (number, clock.epoch) == (network, epoch)
            ]
            assert len(taken) == 5
            assert sorted(chain(*taken)) == list(range(200))
    orders = {tuple(pairs) for _, _, pairs, clock, _ in steps if clock.step == 0}
    assert len(orders) == 6, "networks and epochs have orders of their own"


def test_a_second_stream_goes_round_again(tiny_data, tmp_path, quick, steps, monkeypatch):
    first, second = torch.arange(100), torch.arange(100, 150)
    monkeypatch.setattr(
        Probe, "streams", lambda *_: [Stream("clean", first), Stream("noisy", second)], raising=True
    )
    fit(tiny_data, Probe(), out=tmp_path / "run", **quick(warmup=0, pieces=(2,), batch_size=40))
    for network in (0, 1):
        for epoch in (0, 1):
            taken = [s for s in steps if (s[0], s[3].epoch) == (network, epoch)]
            assert [stream for _, stream, *_ in taken] == ["clean", "noisy"] * 3
            assert [s[3].step for s in taken] == list(range(6))
            assert {s[3].steps_per_epoch for s in taken} == {6}
            clean = [pairs for _, stream, pairs, *_ in taken if stream == "clean"]
            noisy = [pairs for _, stream, pairs, *_ in taken if stream == "noisy"]
            assert sorted(chain(*clean)) == first.tolist()
            assert [len(pairs) for pairs in noisy] == [40, 10, 40]
            assert sorted(noisy[0] + noisy[1]) == second.tolist()
            assert noisy[2] != noisy[0], "the second turn has an order of its own"


def test_the_learning_rate_of_the_schedule_is_used(tiny_data, tmp_path, quick, steps):
    run = fit(tiny_data, "plain", out=tmp_path / "run", **quick(warmup=1, pieces=(3,), decay_after=2))
    rates = [{rate for *_, clock, rate in steps if clock.epoch == epoch} for epoch in range(4)]
    assert rates == [{5e-3}, {5e-3}, {5e-3}, {5e-4}]
    assert [entry["learning_rate"] for entry in run.metrics] == [5e-3, 5e-3, 5e-3, 5e-4]


def test_every_piece_has_fresh_networks_and_labels_that_live_on(tiny_data, tmp_path, quick, monkeypatch):
    begun = []
    original = Trainer._begin_piece

    def recorded(self, piece):
        original(self, piece)
        begun.append(
            ([p.detach().clone() for p in self.networks[0].parameters()], self.ledger.correspondence.clone())
        )

    monkeypatch.setattr(Trainer, "_begin_piece", recorded)
    fit(tiny_data, "crcl", out=tmp_path / "run", **quick(warmup=0, pieces=(3, 1, 2)))
    assert len(begun) == 3
    (first, blank), (second, labels), _ = begun
    assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert bool((blank == 1).all())
    assert not bool((labels == 1).all())


def test_losses_of_pairs_are_remembered_by_methods_without_a_sweep(tiny_data, tmp_path, quick):
    for method in ("plain", "crcl"):
        run = fit(tiny_data, method, out=tmp_path / method, **quick(warmup=0, pieces=(1,)))
        losses = run.ledger()["loss"].to_numpy()
        assert (losses > 0).all()
        assert losses.mean() == pytest.approx(run.metrics[-1]["loss"][0], rel=1e-4)


def test_other_networks_score_in_evaluation_mode(tiny_data, tmp_path, quick, monkeypatch):
    looked = []

    def look(self, step):
        (peer,), own = step.others(), step.again()
        for scores in (peer, own):
            matcher = scores.matcher
            before = {name: buffer.clone() for name, buffer in matcher.named_buffers()}
            value = scores.similarity
            assert not value.requires_grad
            assert matcher.training
            assert all(torch.equal(buffer, before[name]) for name, buffer in matcher.named_buffers())
            with evaluating(matcher):
                expected = Scores(matcher, scores.images, scores.texts).similarity
            torch.testing.assert_close(value, expected)
        assert peer.matcher is not own.matcher is step.scores.matcher
        looked.append(step.network)

    monkeypatch.setattr(Probe, "look", look)
    # SAF's similarities have a batch norm and its encoders have dropout.
    options = {"matcher": "saf", "matcher_options": {"word_width": 8, "embedding": 16, "similarity": 8}}
    fit(
        tiny_data,
        Probe(),
        out=tmp_path / "run",
        **{**quick(warmup=0, pieces=(1,), batch_size=100), **options},
    )
    assert looked == [0, 0, 1, 1]


def test_raw_images_are_means_of_real_regions(tiny_data, tmp_path, quick, monkeypatch):
    import numpy as np

    means = np.load(tiny_data / "train_ims.npy").mean(1)

    def look(self, step):
        np.testing.assert_allclose(
            step.raw_images().numpy(), means[step.pairs.numpy() // 5], rtol=1e-4, atol=1e-5
        )

    monkeypatch.setattr(Probe, "look", look)
    fit(tiny_data, Probe(), out=tmp_path / "run", alter=0.0, **quick(warmup=0, pieces=(1,)))


def test_precision_may_change_from_run_to_run(tiny_data, tmp_path, quick):
    full = fit(tiny_data, "plain", out=tmp_path / "full", **quick(warmup=0, pieces=(1,)))
    mixed = fit(tiny_data, "plain", out=tmp_path / "mixed", precision="bf16", **quick(warmup=0, pieces=(1,)))
    assert mixed.metrics[0]["loss"] != full.metrics[0]["loss"]
    assert mixed.metrics[0]["loss"] == pytest.approx(full.metrics[0]["loss"], rel=0.05)


# How it stops


def worse_every_epoch(monkeypatch) -> None:
    """Validation is best in the second epoch and falls from there."""
    found = iter([100.0, 200.0, *range(199, 0, -1)])

    def evaluated(networks, reader, shown):
        side = dict.fromkeys(("r1", "r5", "r10", "medr", "meanr"), 1.0)
        return {
            "networks": [{"i2t": side, "t2i": side, "rsum": 1.0}],
            "ensemble": {"rsum": float(next(found))},
        }

    monkeypatch.setattr(loop, "evaluate_networks", evaluated)


def test_it_stops_early_when_asked_to(tiny_data, tmp_path, quick, monkeypatch):
    worse_every_epoch(monkeypatch)
    run = fit(tiny_data, "plain", out=tmp_path / "run", **quick(warmup=0, pieces=(20,), patience=3))
    assert [entry["best"] for entry in run.metrics] == [True, True, False, False, False]
    # It had ended: resuming adds no epoch.
    (run.folder / "ledger.parquet").unlink()
    assert len(resume(run.folder, quiet=True).metrics) == 5
    assert run.finished


def test_patience_waits_for_the_last_piece(tiny_data, tmp_path, quick, monkeypatch):
    worse_every_epoch(monkeypatch)
    run = fit(tiny_data, "crcl", out=tmp_path / "run", **quick(warmup=0, pieces=(4, 9), patience=1))
    assert [entry["best"] for entry in run.metrics] == [True, True, False, False, True, False]


def poisoned(monkeypatch, what: str, epoch: int) -> None:
    """In the third step of this epoch the loss, or one gradient, is not a number."""
    place = {}
    original = Trainer._step

    def stepped(self, *batch):
        place["bad"] = (batch[-1].epoch, batch[-1].step) == (epoch, 2)
        return original(self, *batch)

    monkeypatch.setattr(Trainer, "_step", stepped)
    if what == "loss":
        reduce = loop.reduce
        monkeypatch.setattr(
            loop, "reduce", lambda x, **how: reduce(x, **how) * (torch.nan if place["bad"] else 1)
        )
        return

    def average(parameters):
        for parameter in parameters:
            if place["bad"] and parameter.grad is not None:
                parameter.grad.flatten()[0] = torch.inf

    monkeypatch.setattr(loop.processes, "average_gradients", average)


@pytest.mark.parametrize("what", ["loss", "gradient"])
@pytest.mark.parametrize("clip", [2.0, 0.0])
def test_what_is_no_number_stops_the_run_and_spares_the_checkpoint(
    tiny_data, tmp_path, quick, monkeypatch, what, clip
):
    arguments = {"seed": 3, **quick(warmup=0, pieces=(2,), clip=clip)}
    with monkeypatch.context() as patch:
        poisoned(patch, what, epoch=1)
        with pytest.raises(
            TruepairError, match=f"The {what} became (nan|inf) in epoch 2, step 3.*learning rate"
        ):
            fit(tiny_data, "plain", out=tmp_path / "run", **arguments)
    run = Run(tmp_path / "run")
    saved = run.checkpoint("last")
    assert saved.facts["position"]["epoch"] == 1
    assert all(bool(tensor.isfinite().all()) for tensor in saved.tensors.values())
    whole = fit(tiny_data, "plain", out=tmp_path / "whole", **arguments)
    resume(run.folder, quiet=True)
    assert [entry["loss"] for entry in run.metrics] == [entry["loss"] for entry in whole.metrics]


def test_a_sweep_says_the_same_whether_images_are_encoded_once_or_with_every_text(
    tiny_data, tmp_path, quick, monkeypatch
):
    """The first sweep after the warm-up, on networks that are the same in both runs."""
    losses = []
    for name, most in (("once", loop.CODES), ("anew", 0)):
        monkeypatch.setattr(loop, "CODES", most)
        run = fit(tiny_data, "ncr", out=tmp_path / name, seed=1, **quick(warmup=1, pieces=(1,)))
        losses.append(run.ledger()["loss"].to_numpy())
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-5)
    assert losses[0].std() > 0
