"""The training loop: epochs of sweeps and steps, validation, checkpoints; stops and goes on exactly."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from truepair.beliefs.ledger import Ledger
from truepair.errors import TruepairError
from truepair.evaluation.encoding import encode_images, evaluating
from truepair.evaluation.networks import evaluate_networks
from truepair.losses.reduce import reduce
from truepair.matchers.base import Matcher
from truepair.matchers.processes import count, rank
from truepair.methods.base import Division, Method, Step, Stream, Sweep
from truepair.pairs.augment import Augmentation
from truepair.pairs.batch import BatchReader, PairBatch, Rows
from truepair.pairs.batching import EpochOrder
from truepair.pairs.prefetch import Prefetcher
from truepair.training import checkpoints, processes
from truepair.training.checkpoints import Checkpoint
from truepair.training.config import Precision
from truepair.training.run import Run
from truepair.training.schedule import Clock, Schedule, clocks, seed_for
from truepair.training.scores import Scores, autocast
from truepair.training.sweep import sweep
from truepair.training.telling import Telling, describe_beliefs
from truepair.training.tracking import write_events

# Numbers that keep the random orders of one seed apart: what a shuffle is for.
SWEEP_ORDER, STEP_ORDER = 0, 1
# How many numbers of image codes a sweep may keep, 1 GB; with more, images are encoded batch by batch.
CODES = 2**28


@dataclass
class Position:
    """Where a run stands and what it has seen: what a checkpoint keeps besides tensors."""

    epoch: int = 0
    network: int = 0
    step: int = 0
    """Steps that this network has taken in this epoch."""
    swept: bool = False
    """Whether this epoch's division is in the ledger already."""
    loss_sums: list[float] = field(default_factory=list)
    """Of each network, over the steps of this epoch."""
    steps: list[int] = field(default_factory=list)
    best_rsum: float = -1.0
    best_epoch: int = -1


@dataclass
class Trainer:
    """Trains one run from wherever it stands to its end.

    decoys: which pairs were re-paired on purpose, n bools.
    fresh_networks: makes the networks of a piece. networks: the present ones, on the accelerator's device.
    """

    run: Run
    method: Method
    schedule: Schedule
    reader: BatchReader
    ledger: Ledger
    fresh_networks: Callable[[int], list[Matcher]]
    accelerator: Accelerator
    telling: Telling
    decoys: Tensor
    validation: BatchReader | None = None
    division: Division | None = None
    augmentation: Augmentation | None = None
    seed: int = 0
    precision: Precision = "fp32"
    save_every: int = 0
    tensorboard: bool = False
    networks: list[Matcher] = field(init=False)
    optimisers: list[torch.optim.Optimizer] = field(init=False)
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self._begin_piece(0)

    def train(self) -> None:
        """Every epoch that is still to come."""
        for clock in clocks(self.schedule):
            if clock.epoch < self.position.epoch:
                continue
            if self._has_stalled(clock):
                break
            self._epoch(clock)

    def resume(self) -> None:
        """Go back to the last checkpoint, or stay at the beginning if none was written."""
        if self.accelerator.is_main_process:
            self.run.tidy()
        if not self.run.checkpoint_path("last").exists():
            if self.accelerator.is_main_process:
                self.run.keep_metrics(0)
            return
        saved = self.run.checkpoint("last")
        self.position = Position(**saved.facts["position"])
        checkpoints.restore_networks(list(self.networks), saved)
        for number, optimiser in enumerate(self.optimisers):
            checkpoints.restore_optimiser(optimiser, saved.part(f"optimiser{number}."))
        self.ledger.restore(saved.part("ledger."))
        self.ledger.load_past(self.run.beliefs_folder(), self.position.epoch)
        if self.accelerator.is_main_process:
            self.run.keep_metrics(self.position.epoch)
        self.telling.advances(self.position.epoch * len(self.networks) + self.position.network)

    def _has_stalled(self, clock: Clock) -> bool:
        """Whether the epochs before this one were too many without a better result."""
        if self.schedule.patience is None or clock.fresh_piece or clock.piece < len(self.schedule.pieces) - 1:
            return False
        return clock.epoch - 1 - self.position.best_epoch >= self.schedule.patience

    # One epoch

    def _epoch(self, clock: Clock) -> None:
        began, worked = time.perf_counter(), time.process_time()
        position = self.position
        if clock.fresh_piece and not (position.swept or position.network or position.step):
            self._begin_piece(clock.piece)
            # The networks of earlier pieces only served to correct labels.
            position.best_rsum, position.best_epoch = -1.0, clock.epoch
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.schedule.rate(clock.piece, clock.epoch_in_piece)
        if self.method.wants_sweep(clock) and not position.swept:
            self.telling.says(f"epoch {clock.epoch + 1}: looking over all pairs")
            sweeps = [self._sweep(network, clock) for network in range(len(self.networks))]
            self.method.divide(sweeps, self.ledger, self.division, clock)
            position.swept = True
        swept = time.perf_counter()
        waited = [
            self._train_network(network, clock) for network in range(position.network, len(self.networks))
        ]
        trained, worked = time.perf_counter(), time.process_time() - worked
        entry = self._entry(clock)
        entry["time"] = {
            "sweep_seconds": round(swept - began, 3),
            "train_seconds": round(trained - swept, 3),
            "validation_seconds": round(time.perf_counter() - trained, 3),
            "processor_seconds": round(worked, 3),
            "waiting_share": round(sum(waited) / max(len(waited), 1), 4),
        }
        self._close_epoch(clock, entry)

    def _train_network(self, number: int, clock: Clock) -> float:
        """All steps of one network; gives the share of the time that it waited for batches."""
        position = self.position
        position.loss_sums += [0.0] * (number + 1 - len(position.loss_sums))
        position.steps += [0] * (number + 1 - len(position.steps))
        streams = self.method.streams(self.ledger, number, clock)
        plan = list(self._plan(streams, number, clock))
        # Chance follows from where training stands, so a resumed run needs no generator's state.
        seeds = [seed_for(self.seed, clock.epoch, number, step) for step in range(len(plan))]
        ahead = zip(plan[position.step :], seeds[position.step :], strict=True)
        with Prefetcher(self._share(rows, seed) for (_, rows), seed in ahead) as batches:
            for (stream, rows), (batch, lengths) in zip(plan[position.step :], batches, strict=True):
                torch.manual_seed(seed_for(seeds[position.step], rank()))
                now = clock.at(position.step, len(plan))
                loss = self._step(number, stream, torch.from_numpy(rows), batch, lengths, now)
                position.loss_sums[number] += loss
                position.steps[number] += 1
                position.step += 1
                self.telling.advances(1 / len(plan))
                if self.save_every and position.step % self.save_every == 0 and position.step < len(plan):
                    self._save("last")
            waited = batches.waiting_share
        position.network, position.step = number + 1, 0
        return waited

    def _plan(self, streams: Sequence[Stream], number: int, clock: Clock) -> Iterator[tuple[str, Rows]]:
        """Batches of the streams in turn; the first stream sets the number of rounds, the others go round again."""
        rounds = self._batches(streams[0].pairs, clock.epoch, STEP_ORDER, number, 0)
        others = [
            self._cycle(stream, clock.epoch, number, place) for place, stream in enumerate(streams[1:], 1)
        ]
        for rows in rounds:
            yield streams[0].name, rows
            for stream, batches in zip(streams[1:], others, strict=True):
                yield stream.name, next(batches)

    def _cycle(self, stream: Stream, epoch: int, number: int, place: int) -> Iterator[Rows]:
        turn = 0
        while True:
            yield from self._batches(stream.pairs, epoch, STEP_ORDER, number, place, turn)
            turn += 1

    def _batches(self, pairs: Tensor, epoch: int, *purpose: int) -> list[Rows]:
        plan = EpochOrder(pairs.numpy(), self.schedule.batch_size, seed_for(self.seed, *purpose))
        return list(plan.batches(epoch))

    def _share(self, rows: Rows, seed: int | None = None) -> tuple[PairBatch, Tensor]:
        """This process's part of a batch, altered if there is a seed; and the lengths of all its texts."""
        own = processes.share(len(rows))
        images = self.reader.pairs.image_of[rows]
        regions, mask = self.reader.images(images[own])
        tokens, lengths = self.reader.texts(rows)
        if self.augmentation is not None and seed is not None:
            # All processes alter the whole batch alike, then take their parts.
            tokens, lengths = self.augmentation.texts(tokens, lengths, seed)
            whole = torch.ones(len(rows), regions.shape[1], dtype=torch.bool)
            if mask is not None:
                whole[own] = mask
            mask = self.augmentation.regions(whole, seed)[own]
        batch = PairBatch(
            torch.from_numpy(rows[own]),
            torch.from_numpy(images[own]),
            regions,
            mask,
            tokens[own],
            lengths[own],
        )
        return batch, lengths

    # One step

    def _step(
        self, number: int, stream: str, pairs: Tensor, batch: PairBatch, lengths: Tensor, clock: Clock
    ) -> float:
        network, optimiser = self.networks[number], self.optimisers[number]
        batch, lengths = batch.to(self.accelerator.device), lengths.to(self.accelerator.device)

        def scores_of(which: Matcher) -> Scores:
            with evaluating(which):
                scores = self._scores(which, batch, lengths)
                # Computed here: outside of this block the network is in training mode again.
                _ = scores.similarity
                return scores

        network.train()
        step = Step(
            pairs=pairs,
            network=number,
            scores=self._scores(network, batch, lengths),
            others=lambda: [scores_of(other) for other in self.networks if other is not network],
            again=lambda: scores_of(network),
            stream=stream,
            clock=clock,
            raw_images=lambda: processes.gather_rows(mean_regions(batch), len(pairs)),
        )
        losses = self.method.loss(step, self.ledger)
        loss = reduce(losses, weights=self.method.weight(step, self.ledger).to(losses.device))
        _check_finite("loss", loss, clock)
        if not self.method.wants_sweep(clock):
            self.ledger.loss[number, pairs] = losses.detach().float().cpu()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        processes.average_gradients(network.parameters())
        largest = self.schedule.clip or math.inf
        _check_finite("gradient", torch.nn.utils.clip_grad_norm_(network.parameters(), largest), clock)
        optimiser.step()
        return loss.item()

    def _scores(self, network: Matcher, batch: PairBatch, lengths: Tensor) -> Scores:
        mixed = self.precision == "bf16"
        with autocast(self.accelerator.device, mixed):
            images = network.encode_images(batch.regions, batch.mask)
            texts = network.encode_texts(batch.tokens, batch.lengths)
        return Scores(
            network,
            processes.gather_images(images, len(lengths)),
            processes.gather_texts(texts, lengths),
            mixed=mixed,
        )

    def _sweep(self, number: int, clock: Clock) -> Sweep:
        network = self.networks[number]
        # Both networks see the same batches, composed anew in each epoch.
        plan = self._batches(torch.arange(self.ledger.loss.shape[1]), clock.epoch, SWEEP_ORDER)
        with evaluating(network):
            return sweep(self.method, self._looked_over(network, plan), self.decoys)

    def _looked_over(self, network: Matcher, plan: Sequence[Rows]) -> Iterator[tuple[Tensor, Scores]]:
        """Scores of each batch, in evaluation mode. Codes of images do not depend on the batch then, so that each
        image is read and encoded once however many texts it has, where the codes of all are not too many."""
        device, mixed = self.accelerator.device, self.precision == "bf16"
        with autocast(device, mixed):
            images = None if count() > 1 else encode_images(network, self.reader, device, CODES)
        if images is None:
            with Prefetcher(self._share(rows) for rows in plan) as batches:
                for rows, (batch, lengths) in zip(plan, batches, strict=True):
                    yield torch.from_numpy(rows), self._scores(network, batch.to(device), lengths.to(device))
            return
        for rows in plan:
            tokens, lengths = self.reader.texts(rows)
            own = torch.from_numpy(self.reader.pairs.image_of[rows]).to(device)
            with autocast(device, mixed):
                texts = network.encode_texts(tokens.to(device), lengths.to(device))
            yield torch.from_numpy(rows), Scores(network, images.take(own), texts, mixed=mixed)

    # Beginnings and ends

    def _begin_piece(self, piece: int) -> None:
        self.networks = [network.to(self.accelerator.device) for network in self.fresh_networks(piece)]
        kind = torch.optim.AdamW if self.schedule.optimiser == "adamw" else torch.optim.Adam
        self.optimisers = [
            kind(network.parameters(), lr=self.schedule.learning_rate) for network in self.networks
        ]

    def _entry(self, clock: Clock) -> dict[str, Any]:
        """The line of metrics.jsonl for a finished epoch."""
        position = self.position
        entry: dict[str, Any] = {
            "epoch": clock.epoch,
            "stage": "warm-up" if clock.warming_up else f"piece {clock.piece + 1}",
            "learning_rate": self.schedule.rate(clock.piece, clock.epoch_in_piece),
            "loss": [
                total / max(steps, 1) for total, steps in zip(position.loss_sums, position.steps, strict=True)
            ],
            "beliefs": describe_beliefs(self.ledger, self.reader.pairs.mismatched, self.decoys),
        }
        if self.validation is not None:
            entry["validation"] = evaluate_networks(self.networks, self.validation, shown=False)
        return entry

    def _close_epoch(self, clock: Clock, entry: dict[str, Any]) -> None:
        position = self.position
        rsum = entry["validation"]["ensemble"]["rsum"] if self.validation is not None else 0.0
        best = rsum > position.best_rsum or self.validation is None
        if best:
            position.best_rsum, position.best_epoch = rsum, clock.epoch
        entry["best"] = best
        self.ledger.close_epoch()
        self.position = Position(
            epoch=clock.epoch + 1, best_rsum=position.best_rsum, best_epoch=position.best_epoch
        )
        if self.accelerator.is_main_process:
            self.ledger.save_epoch(self.run.beliefs_folder(), clock.epoch)
            self.run.append_metrics(entry)
            if self.tensorboard:
                write_events(self.run.tensorboard_folder(), entry)
        if best:
            self._save("best")
        self._save("last")
        self.telling.epoch_ended(entry)

    def _save(self, which: str) -> None:
        if not self.accelerator.is_main_process:
            return
        tensors = checkpoints.networks_tensors(list(self.networks))
        if which == "last":
            for number, optimiser in enumerate(self.optimisers):
                tensors |= checkpoints.optimiser_tensors(optimiser, f"optimiser{number}.")
            tensors |= checkpoints.ledger_tensors(self.ledger)
        checkpoints.write(
            self.run.checkpoint_path(which), Checkpoint(tensors, {"position": asdict(self.position)})
        )


def _check_finite(what: str, value: Tensor, clock: Clock) -> None:
    if not bool(value.isfinite()):
        raise TruepairError(
            f"The {what} became {value.item()} in epoch {clock.epoch + 1}, step {clock.step + 1}. "
            "Lower the learning rate, or train in fp32; the last checkpoint is whole."
        )


def mean_regions(batch: PairBatch) -> Tensor:
    """The mean raw feature vector of every image, n x width."""
    if batch.mask is None:
        return batch.regions.mean(1)
    return (batch.regions * batch.mask[..., None]).sum(1) / batch.mask.sum(1, keepdim=True)
