"""What a method is: how many networks, what happens before an epoch, what the loss of a batch is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from truepair.beliefs.ledger import Ledger
from truepair.errors import TruepairError
from truepair.matchers.base import Matcher
from truepair.training.schedule import Clock
from truepair.training.scores import Scores

# From the sweep of one network to the probability that each pair is clean.
Division = Callable[["Sweep"], NDArray[np.float64]]


@dataclass(frozen=True)
class Stream:
    """Pairs an epoch draws batches from. The first stream of a network sets the number of steps."""

    name: str
    pairs: Tensor


@dataclass(frozen=True)
class Sweep:
    """What one look over all pairs in evaluation mode found out about one network.

    values: per-pair values by name, among them "loss". scores: similarity of every pair. decoys: which pairs were
    re-paired on purpose before training, n bools; none in most runs.
    """

    values: Mapping[str, Tensor]
    scores: Tensor
    decoys: Tensor


@dataclass(frozen=True)
class Step:
    """All that a method may look at when it computes the loss of a batch.

    pairs: rows of the batch in the ledger. scores: of the network in training, with gradient. network: its
    number. others: scores of the other networks on the same batch, in evaluation mode and without gradient,
    computed when called. again: the same of the network itself. stream: where the batch was drawn from.
    """

    pairs: Tensor
    network: int
    scores: Scores
    others: Callable[[], Sequence[Scores]]
    again: Callable[[], Scores]
    stream: str
    clock: Clock
    raw_images: Callable[[], Tensor]
    """Mean raw region features of the batch's images, n x features, computed when called."""


@dataclass(frozen=True)
class Method(ABC):
    """One paper. Fields are the paper's values; anything that it ablates is a field that switches it off."""

    name: ClassVar[str]
    title: ClassVar[str]
    networks: ClassVar[int] = 1
    divides: ClassVar[bool] = False
    """Whether it divides the pairs from a sweep before each epoch, so that a division can be chosen."""
    needs_parts: ClassVar[bool] = False
    """Whether it looks at codes of regions and words, not only at similarities and global vectors."""

    def check(self, matcher: Matcher | type[Matcher]) -> None:
        """Complain, before anything is trained, about a matcher that lacks what the method looks at."""
        if self.needs_parts and not matcher.has_parts:
            raise TruepairError(
                f"The method '{self.name}' compares how regions and words relate, but this matcher encodes each item "
                "as one vector. Choose a matcher with region and word codes (sgr, saf, sgraf, scan, vse_infty)."
            )

    @abstractmethod
    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """One value per pair of the batch; training takes their mean. May write beliefs to the ledger."""

    def weight(self, step: Step, ledger: Ledger) -> Tensor:
        """What each pair's loss counts, n: in warm-up as much as the prior believes the pair, afterwards fully."""
        prior = ledger.prior[step.pairs]
        return prior if step.clock.warming_up else torch.ones_like(prior)

    def streams(self, ledger: Ledger, network: int, clock: Clock) -> list[Stream]:
        """Where the network's batches of this epoch come from: one stream of all pairs unless a method divides."""
        return [Stream("all", torch.arange(ledger.loss.shape[1]))]

    def wants_sweep(self, clock: Clock) -> bool:
        """Whether an epoch begins with a look over all pairs."""
        return self.divides and not clock.warming_up

    def sweep(self, scores: Scores) -> dict[str, Tensor]:
        """Per-pair values of a batch that the division reads; "loss" among them."""
        raise NotImplementedError(f"{self.name} does not sweep")

    def divide(
        self, sweeps: Sequence[Sweep], ledger: Ledger, division: Division | None, clock: Clock
    ) -> None:
        """Write clean probabilities and partitions for all pairs. division replaces the paper's own."""
        raise NotImplementedError(f"{self.name} does not divide")
