"""NCR: learning with noisy correspondence for cross-modal matching (Huang et al., NeurIPS 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from truepair.beliefs.ledger import Ledger
from truepair.beliefs.rectify import adaptive_prediction, ncr_noisy_targets, ncr_targets
from truepair.losses.triplet import MarginForm, Negatives, soft_margin
from truepair.methods.base import Division, Method, Step, Stream, Sweep
from truepair.methods.divisions import co_teaching_streams, divide_each, gaussian_division
from truepair.training.schedule import Clock
from truepair.training.scores import Scores


@dataclass(frozen=True)
class NCR(Method):
    """Two networks divide the pairs for each other and correct the labels of both sides."""

    name: ClassVar[str] = "ncr"
    title: ClassVar[str] = "Co-divide, co-rectify, soft-margin triplet (NeurIPS 2021)"
    networks: ClassVar[int] = 2
    divides: ClassVar[bool] = True

    margin: float = 0.2
    soft_margin: MarginForm = "exponential"
    margin_base: float = 10.0
    negatives: Negatives = "hardest"
    """After the warm-up. Hardest negatives need a matcher that already tells most pairs apart (docs/results.md)."""
    threshold: float = 0.5
    co_divide: bool = True
    """Off: nothing is divided; every pair gets the label that a noisy one would get."""
    co_rectify: bool = True
    """Off: clean pairs count fully and noisy pairs are left out."""
    noisy_after: float = 0.5
    """Share of the epochs after the warm-up that pass before noisy pairs are trained on (published: half)."""
    separate_predictions: bool = False
    """Predict labels in a pass of their own in evaluation mode, as published; else the step's own scores serve."""
    published_broadcast: bool = False
    """Labels as the published loop shapes them, n x n for clean pairs and n x 1 for noisy ones, so that the margin
    of a pair depends on which negative it meets; instead of one label per pair."""

    def wants_sweep(self, clock: Clock) -> bool:
        """Only a division needs one."""
        return self.co_divide and not clock.warming_up

    def sweep(self, scores: Scores) -> dict[str, Tensor]:
        """The warm-up loss of every pair."""
        return {"loss": scores.triplet(self.margin, "mean")}

    def divide(
        self, sweeps: Sequence[Sweep], ledger: Ledger, division: Division | None, clock: Clock
    ) -> None:
        """Step 2: a two-component Gaussian mixture of each network's losses."""
        divide_each(sweeps, ledger, division or gaussian_division, self.threshold)
        # What is believed of pairs that no step of this epoch reaches.
        ledger.correspondence.copy_(ledger.clean.flip(0))

    def streams(self, ledger: Ledger, network: int, clock: Clock) -> list[Stream]:
        """Each network learns from what the other one calls clean, and later also from the rest."""
        if clock.warming_up or not self.co_divide:
            return super().streams(ledger, network, clock)
        clean, noisy = co_teaching_streams(ledger, network)
        late = clock.epoch_in_piece >= int(self.noisy_after * sum(clock.pieces))
        return [clean, noisy] if self.co_rectify and late else [clean]

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """Step 1 in warm-up, step 3 after it."""
        if step.clock.warming_up:
            return step.scores.triplet(self.margin, "mean")
        label = self._labels(step, ledger)
        margins = soft_margin(label, self.margin, self.soft_margin, self.margin_base)
        return step.scores.triplet(margins, self.negatives)

    def _labels(self, step: Step, ledger: Ledger) -> Tensor:
        """Soft correspondence of every pair of the batch: y of step 2."""
        scores = step.again() if self.separate_predictions else step.scores
        if not self.co_rectify:
            return torch.ones(len(step.pairs), device=scores.constant.device)
        own = adaptive_prediction(scores.constant, self.margin)
        if step.stream == "clean":
            # A's division trains B, and B's trains A.
            clean = ledger.clean[1 - step.network, step.pairs].to(own.device)
            ledger.correspondence[step.network, step.pairs] = ncr_targets(clean, own).cpu()
            return ncr_targets(clean, own, published_broadcast=self.published_broadcast)
        (peer,) = step.others()
        label = ncr_noisy_targets(own, adaptive_prediction(peer.constant, self.margin))
        ledger.correspondence[step.network, step.pairs] = label.cpu()
        return label[:, None] if self.published_broadcast else label
