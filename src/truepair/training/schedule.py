"""When things happen: epochs, warm-up, pieces, learning rates."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal

import numpy as np

from truepair.errors import TruepairError


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train. Epochs are passes over the pairs."""

    warmup: int = 5
    """Epochs of the method's warm-up loss before it divides or corrects."""
    pieces: tuple[int, ...] = (40,)
    """Epochs after the warm-up; with several pieces each one starts from fresh networks (CRCL)."""
    decay_after: int = 30
    """Epochs of the last piece after which the learning rate falls."""
    decay: float = 0.1
    learning_rate: float = 2e-4
    batch_size: int = 128
    optimiser: Literal["adam", "adamw"] = "adam"
    clip: float = 2.0
    """Largest norm of the gradient; 0 leaves it as it is."""
    patience: int | None = None
    """Stop after so many epochs without a better validation rSum; None trains to the end."""

    @property
    def epochs(self) -> int:
        """All epochs, warm-up and every piece."""
        return self.warmup + sum(self.pieces)

    def rate(self, piece: int, epoch_in_piece: int) -> float:
        """The learning rate of an epoch. Warm-up epochs count as negative epochs of the first piece."""
        late = piece == len(self.pieces) - 1 and epoch_in_piece >= self.decay_after
        return self.learning_rate * (self.decay if late else 1.0)


@dataclass(frozen=True)
class Clock:
    """Where training stands."""

    epoch: int
    """Epochs begun since the start, from 0."""
    piece: int
    epoch_in_piece: int
    """From 0; negative during warm-up."""
    pieces: tuple[int, ...]
    step: int = 0
    """Steps of this epoch, from 0."""
    steps_per_epoch: int = 1

    @property
    def warming_up(self) -> bool:
        """Whether this epoch belongs to the warm-up."""
        return self.epoch_in_piece < 0

    @property
    def fresh_piece(self) -> bool:
        """Whether networks start anew with this epoch."""
        return self.piece > 0 and self.epoch_in_piece == 0

    @property
    def steps_in_piece(self) -> int:
        """Steps taken since the piece began."""
        return self.epoch_in_piece * self.steps_per_epoch + self.step

    def at(self, step: int, steps_per_epoch: int) -> "Clock":
        """The same epoch at this step."""
        return replace(self, step=step, steps_per_epoch=steps_per_epoch)


def clocks(schedule: Schedule) -> Iterator[Clock]:
    """One clock per epoch, in order."""
    epoch = 0
    for piece, epochs in enumerate(schedule.pieces):
        for epoch_in_piece in range(-schedule.warmup if piece == 0 else 0, epochs):
            yield Clock(epoch, piece, epoch_in_piece, schedule.pieces)
            epoch += 1


def preset(method: str, name: str) -> Schedule:
    """The schedule of a method on a data set, as presets.toml beside this file lists it."""
    values = {name: value for name, value in _listed(method, name).items() if name != "values"}
    return Schedule(**{**values, "pieces": tuple(values["pieces"])})


def preset_values(method: str, name: str) -> dict[str, Any]:
    """What a method's own fields should be on such a data set, where that is not what its paper prints."""
    values: dict[str, Any] = _listed(method, name).get("values", {})
    return values


def _listed(method: str, name: str) -> dict[str, Any]:
    text = resources.files("truepair.training").joinpath("presets.toml").read_text(encoding="utf-8")
    presets = tomllib.loads(text)
    if name not in presets:
        raise TruepairError(f"There is no preset '{name}'. Choose one of: {', '.join(presets)}.")
    return {**presets[name].get("all", {}), **presets[name].get(method, {})}


def seed_for(*purpose: int) -> int:
    """A seed that belongs to these numbers (the run's seed, then what it is for) and to no others."""
    return int(np.random.SeedSequence(purpose).generate_state(1, np.uint64)[0])
