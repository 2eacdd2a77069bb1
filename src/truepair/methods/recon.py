"""ReCon: enhancing true correspondence discrimination through relation consistency (CVPR 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from truepair.beliefs.divide import split_by_posterior, split_three_ways
from truepair.beliefs.ledger import Ledger, Partition
from truepair.beliefs.rectify import momentum_label
from truepair.losses.infonce import info_nce, matching_probabilities
from truepair.losses.relation import (
    cosine_scores,
    recon_weights,
    relation_discrepancy,
    relation_inconsistency,
)
from truepair.matchers.base import lengths_to_mask
from truepair.methods.base import Division, Method, Step, Sweep
from truepair.methods.divisions import gaussian_division
from truepair.training.schedule import Clock
from truepair.training.scores import Scores


@dataclass(frozen=True)
class ReCon(Method):
    """One network; pairs whose parts do not relate alike are set apart from the clean ones."""

    name: ClassVar[str] = "recon"
    title: ClassVar[str] = "Relation consistency, three-way division (CVPR 2025)"
    divides: ClassVar[bool] = True
    needs_parts: ClassVar[bool] = True

    margin: float = 0.2  # gamma, Eq. 12
    temperature: float = 0.1  # tau
    relation_temperature: float = 0.35
    """Of the softmax over similarities within a modality; not printed. At 0.1 every pair comes out as locally
    associated, at 0.5 none does (docs/methods.md)."""
    threshold: float = 0.5  # omega_1
    discrepancy_threshold: float = 0.5  # omega_2, Eq. 8
    penalty_scale: float = 0.1  # alpha, Eq. 9
    momentum: float = 0.6  # beta, Eq. 10
    balance: float = 5.0  # xi, Eq. 13-14
    true_positives: bool = True
    """True-positive identification, Eq. 7-8; off: the rough division stands."""
    relations: bool = True
    """L_IM, Eq. 3-4, in the training loss."""
    penalty: bool = True
    """lambda, Eq. 9; off: locally associated pairs train the relations fully."""

    def sweep(self, scores: Scores) -> dict[str, Tensor]:
        """L_CM of every pair for the rough division, and y_IM for the fine one."""
        return {
            "loss": info_nce(scores.similarity, self.temperature),
            "discrepancy": relation_discrepancy(self._inconsistency(scores)),  # Eq. 7
        }

    def divide(
        self, sweeps: Sequence[Sweep], ledger: Ledger, division: Division | None, clock: Clock
    ) -> None:
        """Eq. 6-8: rough division by a Gaussian mixture, then clean against locally associated."""
        (sweep,) = sweeps
        clean = torch.from_numpy((division or gaussian_division)(sweep)).float()
        rough = split_by_posterior(clean, self.threshold)
        discrepancy = sweep.values["discrepancy"]
        if not self.true_positives:
            discrepancy = torch.zeros_like(discrepancy)
        ledger.loss[0], ledger.clean[0] = sweep.values["loss"], clean
        ledger.partition[0] = split_three_ways(rough, discrepancy, self.discrepancy_threshold)

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """Eq. 12 in warm-up; then Eq. 13, 14 or 15, as the pair was divided."""
        scores = step.scores
        if step.clock.warming_up:
            return scores.triplet(self.margin, "sum")
        inconsistency = self._inconsistency(scores)
        partition = ledger.partition[0, step.pairs].to(inconsistency.device)
        label = self._pseudo_labels(step, ledger).to(inconsistency.device)
        discrepancy = relation_discrepancy(inconsistency).detach()
        if not self.penalty:
            discrepancy = torch.zeros_like(discrepancy)
        cross, relation = recon_weights(partition, discrepancy, label, self.balance, self.penalty_scale)
        loss = cross * info_nce(scores.similarity, self.temperature)
        return loss + relation * inconsistency if self.relations else loss

    def _pseudo_labels(self, step: Step, ledger: Ledger) -> Tensor:
        """Eq. 10 for noisy pairs, 1 for all others (Eq. 11)."""
        i2t, t2i = matching_probabilities(step.scores.constant, self.temperature)
        predicted = (i2t.diagonal() + t2i.diagonal()).cpu() / 2
        noisy = ledger.partition[0, step.pairs] == int(Partition.NOISY)
        followed = momentum_label(ledger.correspondence[0, step.pairs], predicted, self.momentum)
        label = torch.where(noisy, followed, 1.0)
        ledger.correspondence[0, step.pairs] = label
        return label

    def _inconsistency(self, scores: Scores) -> Tensor:
        """L_IM of every pair, Eq. 3-4."""
        images, texts = scores.images, scores.texts
        self.check(scores.matcher)
        words = lengths_to_mask(texts.lengths, texts.words.shape[1])
        return relation_inconsistency(
            cosine_scores(images.regions, texts.words, self.relation_temperature), images.mask, words
        )
