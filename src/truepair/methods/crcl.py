"""CRCL: active complementary learning with self-refining correspondence (Qin et al., NeurIPS 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from truepair.beliefs.ledger import Ledger
from truepair.beliefs.rectify import SelfRefinement, frozen_epochs, self_refined_label
from truepair.losses.complementary import active_loss, robust_complementary_loss
from truepair.losses.infonce import matching_probabilities
from truepair.methods.base import Method, Step


@dataclass(frozen=True)
class CRCL(Method):
    """One network, begun anew in every piece; labels follow its own predictions and live on."""

    name: ClassVar[str] = "crcl"
    title: ClassVar[str] = "Active complementary loss, self-refining correspondence (NeurIPS 2023)"

    temperature: float = 0.05  # tau, Eq. 3
    momentum: float = 0.8  # beta, Eq. 10
    frozen_epochs: int = 2  # e_f, Eq. 11
    frozen_steps: int = 0
    """Freeze for at least so many steps too: two epochs of a small data set are too few to predict from."""
    sure_noise_below: float = 0.1  # epsilon, Eq. 12
    complement_weight: float = 5.0  # lambda, Eq. 8
    active: bool = True
    """L_d; off: complementary learning alone."""
    complementary: bool = True
    """L_r; off: label-weighted InfoNCE."""
    correction: bool = True
    """SCC, Eq. 10-12; off: all labels stay as they were in the beginning."""

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """Algorithm 1: probabilities, then labels, then the loss."""
        i2t, t2i = matching_probabilities(step.scores.similarity, self.temperature)  # Eq. 3
        label = ledger.correspondence[step.network, step.pairs].to(i2t.device)
        if self.correction:
            label = self._refined(label, (i2t.diagonal() + t2i.diagonal()).detach() / 2, step, ledger)
        loss = torch.zeros_like(label)
        if self.active:
            loss = loss + active_loss(i2t, t2i, label)
        if self.complementary:
            loss = loss + self.complement_weight * robust_complementary_loss(
                i2t, t2i, 1 - label
            )  # Eq. 6, q = 1 - y
        return loss  # Eq. 8

    def _refined(self, label: Tensor, agreement: Tensor, step: Step, ledger: Ledger) -> Tensor:
        """Eq. 10-12: the label for the loss; what is to be remembered goes to the ledger."""
        frozen = max(self.frozen_epochs, frozen_epochs(self.frozen_steps, step.clock.steps_per_epoch))
        settings = SelfRefinement(self.momentum, frozen, self.sure_noise_below)
        used, kept = self_refined_label(
            label, agreement, step.clock.epoch_in_piece, step.clock.piece, settings
        )
        ledger.correspondence[step.network, step.pairs] = kept.cpu()
        ledger.clean[step.network, step.pairs] = kept.cpu()
        return used
