"""Plain training: the triplet loss or InfoNCE on all pairs as they come. What the robust methods are compared with."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from truepair.beliefs.ledger import Ledger
from truepair.losses.infonce import info_nce
from truepair.methods.base import Method, Step


@dataclass(frozen=True)
class Plain(Method):
    """The triplet loss of VSE++ (warm-up over the mean of all negatives, then the hardest), or InfoNCE."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "Triplet loss or InfoNCE on all pairs"

    objective: Literal["triplet", "infonce"] = "infonce"
    margin: float = 0.2
    temperature: float = 0.05

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """The chosen objective."""
        if self.objective == "infonce":
            return info_nce(step.scores.similarity, self.temperature)
        return step.scores.triplet(self.margin, "mean" if step.clock.warming_up else "hardest")

    def weight(self, step: Step, ledger: Ledger) -> Tensor:
        """Throughout as much as the prior believes the pair: nothing else here ever doubts one."""
        return ledger.prior[step.pairs]
