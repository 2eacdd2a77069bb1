"""SREM: noisy correspondence learning with self-reinforcing errors mitigation (Dang et al., AAAI 2024)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from truepair.beliefs.ledger import Ledger, Partition
from truepair.losses.complementary import Reading, biased_complementary
from truepair.losses.energy import (
    Average,
    clean_by_energy,
    energies,
    energy_bound,
    entropy_weights,
    mismatch_level,
    swapped_hinge,
)
from truepair.losses.infonce import matching_probabilities
from truepair.methods.base import Method, Step


@dataclass(frozen=True)
class SREM(Method):
    """One network; the division happens inside the step, from the energies of the batch's answers."""

    name: ClassVar[str] = "srem"
    title: ClassVar[str] = (
        "Energy filtration, swapped gradient weighting, biased complementary learning (AAAI 2024)"
    )

    margin: float = 0.2  # alpha, Eq. 5
    average: Average = "clean"
    """Eq. 6 averages over the clean pairs; "batch" counts them as pairs of the batch, for where they are few."""
    clean_energy: float = -4.0  # m_clean, Eq. 3 and Figure 4
    noisy_energy: float = 0.0  # m_noisy
    energy_threshold: float = -2.0
    """tau, Eq. 2: not printed; the middle of the two margins."""
    energy_weight: float = 0.1  # lambda_1 in [0, 1], not printed
    complement_weight: float = 1.0  # lambda_2 in [0, 1], not printed
    steepness: float = 2.0  # beta, Eq. 10 (the multi-similarity loss's value)
    base: float = 0.5  # b, Eq. 10
    reading: Reading = "weighted"
    """What Eq. 12 means; see `biased_complementary`: "product" is the printed formula, "uniform" the ablation L_c*."""
    answers: Literal["probabilities", "scores"] = "probabilities"
    """What L_c looks at: matching probabilities among the batch, or S as printed, which collapses (docs/methods.md)."""
    temperature: float = 0.1
    """Of those probabilities. Their gradient vanishes with the matched one's, so it must not start near 0."""
    cosine_scale: float = 20.0
    """A cosine is no logit: over 128 answers its energy stays below m_clean whatever it says. Matchers without
    a sigmoid get F = scale S - level, the batch's `mismatch_level`: unanswered pairs then have energy 0 = m_noisy,
    and m_clean is a matched answer with 98 % of the probability."""
    ranking: bool = True
    """L_w, Eq. 6."""
    bounding: bool = True
    """L_u, Eq. 3."""
    complementary: bool = True
    """L_c, Eq. 13."""

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """Complementary learning alone in warm-up, then 0.5 L_w + lambda_1 L_u + lambda_2 L_c, both ways."""
        similarity = step.scores.similarity
        if step.clock.warming_up:
            return self._complementary(similarity, None, None)
        logits = self._logits(step)
        clean = by_image, by_text = clean_by_energy(logits, self.energy_threshold)  # Eq. 2
        self._record(step, ledger, by_image, by_text, logits)
        loss = torch.zeros_like(similarity.diagonal())
        if self.ranking:
            weights = entropy_weights(logits, similarity, self.margin)  # Eq. 4-5
            loss = loss + swapped_hinge(similarity, weights, clean, self.margin, self.average)  # Eq. 6
        if self.bounding:
            bounds = zip(energies(logits), clean, strict=True)
            for energy, trusted in bounds:
                bound = energy_bound(energy, trusted, self.clean_energy, self.noisy_energy)  # Eq. 3
                loss = loss + self.energy_weight * bound
        if self.complementary:
            loss = loss + self.complement_weight * self._complementary(similarity, by_image, by_text)
        return loss

    def _logits(self, step: Step) -> Tensor:
        if step.scores.matcher.has_sigmoid:
            return step.scores.logits.float()
        stretched = self.cosine_scale * step.scores.similarity
        return stretched - mismatch_level(stretched)

    def _complementary(self, similarity: Tensor, by_image: Tensor | None, by_text: Tensor | None) -> Tensor:
        """Eq. 10-13 in both directions.

        Scores are averaged over the other answers, as printed. Probabilities of a row add up to one however many
        there are: their terms are added up, or the loss would weigh a hundredth of the others in a batch of 128.
        """
        i2t, t2i, terms = similarity, similarity, 1
        if self.answers == "probabilities":
            i2t, t2i = matching_probabilities(similarity, self.temperature)
            terms = len(similarity) - 1

        def one_way(answers: Tensor, clean: Tensor | None) -> Tensor:
            return terms * biased_complementary(
                answers, clean, steepness=self.steepness, base=self.base, reading=self.reading
            )

        return one_way(i2t, by_image) + one_way(t2i.T, by_text)

    def _record(self, step: Step, ledger: Ledger, by_image: Tensor, by_text: Tensor, logits: Tensor) -> None:
        """The ledger keeps the probability of the given answer as the belief, and whether both sides trust it."""
        answers = (logits.softmax(1).diagonal() + logits.softmax(0).diagonal()).detach() / 2
        trusted = torch.where(by_image & by_text, int(Partition.CLEAN), int(Partition.NOISY))
        ledger.clean[step.network, step.pairs] = answers.cpu()
        ledger.correspondence[step.network, step.pairs] = answers.cpu()
        ledger.partition[step.network, step.pairs] = trusted.to(torch.uint8).cpu()
