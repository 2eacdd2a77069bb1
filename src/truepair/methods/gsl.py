"""GSL: rethinking cross-modal anchor alignment for mitigating error accumulation (CVPR 2026)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from truepair.beliefs.anchors import (
    Form,
    cosines,
    frequency_representation,
    geometry_labels,
    remember_anchors,
    spectrum,
)
from truepair.beliefs.ledger import Ledger, Partition
from truepair.beliefs.mixtures import Start
from truepair.losses.structure import Scale, inter_structure, intra_structure, semantic_constrained
from truepair.losses.triplet import MarginForm, Negatives, soft_margin
from truepair.methods.base import Division, Method, Step, Sweep
from truepair.methods.divisions import beta_division, divide_each
from truepair.training.schedule import Clock
from truepair.training.scores import Scores


@dataclass(frozen=True)
class GSL(Method):
    """Two networks; noisy pairs get labels from how they stand to clean anchors, in the frequency domain."""

    name: ClassVar[str] = "gsl"
    title: ClassVar[str] = "Fourier anchor alignment, geometry-aware labels, structural triplet (CVPR 2026)"
    networks: ClassVar[int] = 2
    divides: ClassVar[bool] = True

    margin: float = 0.2
    soft_margin: MarginForm = "exponential"
    margin_base: float = 10.0
    negatives: Negatives = "hardest"
    """After the warm-up. Hardest negatives need a matcher that already tells most pairs apart (docs/results.md)."""
    threshold: float = 0.5  # delta
    mixture_start: Start = "median"
    """Where the fit of the Beta mixture begins; not printed. "fixed", BiCro's, ends after ten iterations with a long
    tail of few pairs as the noisy component where most losses crowd near 0 (docs/results.md)."""
    warmup_negatives: Negatives = "mean"
    """L_w in warm-up over the mean of all negatives, as NCR warms up; over the hardest one it collapses."""
    intra_weight: float = 1.0  # zeta, Eq. 16
    inter_weight: float = 0.1  # eta, Eq. 16
    structure_scale: Scale = "mean"
    """"sum" is the printed double sum, whose weight grows with the batch."""
    anchor_images: Literal["learned", "raw"] = "learned"
    """Image side of the anchors: the learned global vector, or the mean of the raw region features."""
    anchor_memory: int = 0
    """Clean pairs of earlier batches that also serve as anchors; 0 takes them from the batch, as Algorithm 1 does."""
    label_form: Form = "folded"
    """"raw" is Eq. 11 as printed, which is at least 1 and grows with the distortion."""
    galc: bool = True
    """Geometry-aware label correction; off: noisy pairs count nothing."""
    foa2: bool = True
    """Fourier anchor alignment; off: GALC compares the features themselves."""
    sct: bool = True
    """The structural terms of the loss, Eq. 13 and 15; off: L_w alone trains and divides."""

    def sweep(self, scores: Scores) -> dict[str, Tensor]:
        """L_SCT of every pair (Algorithm 1, lines 3-5)."""
        return {"loss": self._constrained(scores, scores.triplet(self.margin, self.negatives))}

    def divide(
        self, sweeps: Sequence[Sweep], ledger: Ledger, division: Division | None, clock: Clock
    ) -> None:
        """Lines 6-10: a Beta mixture of each network's losses."""
        fitted = partial(beta_division, start=self.mixture_start)
        divide_each(sweeps, ledger, division or fitted, self.threshold)

    def loss(self, step: Step, ledger: Ledger) -> Tensor:
        """L_w in warm-up (line 1), then L_SCT with refined labels (lines 11-16)."""
        if step.clock.warming_up:
            return step.scores.triplet(self.margin, self.warmup_negatives)
        label = self._labels(step, ledger)
        ledger.correspondence[step.network, step.pairs] = label.cpu()
        margins = soft_margin(label, self.margin, self.soft_margin, self.margin_base)
        return self._constrained(step.scores, step.scores.triplet(margins, self.negatives))  # Eq. 16

    def _constrained(self, scores: Scores, triplet: Tensor) -> Tensor:
        if not self.sct:
            return triplet
        images, texts = scores.matcher.image_vectors(scores.images), scores.matcher.text_vectors(scores.texts)
        intra = intra_structure(
            cosines(images, images), cosines(texts, texts), self.structure_scale
        )  # Eq. 13
        across = scores.similarity
        inter = inter_structure(across, across.T, self.structure_scale)  # Eq. 15
        return semantic_constrained(triplet, intra, inter, self.intra_weight, self.inter_weight)

    def _labels(self, step: Step, ledger: Ledger) -> Tensor:
        """1 for pairs that the other network calls clean; Eq. 8-11 for the rest, with the clean ones as anchors."""
        scores = step.scores
        clean = (ledger.partition[1 - step.network, step.pairs] == int(Partition.CLEAN)).to(
            scores.images.vectors.device
        )
        if not self.galc:
            return clean.float()
        with torch.no_grad():
            images = (
                step.raw_images()
                if self.anchor_images == "raw"
                else scores.matcher.image_vectors(scores.images)
            )
            texts = scores.matcher.text_vectors(scores.texts)
            anchor_images, anchor_texts = self._anchors(step.network, images[clean], texts[clean], ledger)
            if self.foa2:  # Eq. 7; pairs and anchors around the same mean
                images_mean, texts_mean = spectrum(anchor_images).mean(0), spectrum(anchor_texts).mean(0)
                images, anchor_images = (
                    frequency_representation(x, images_mean) for x in (images, anchor_images)
                )
                texts, anchor_texts = (frequency_representation(x, texts_mean) for x in (texts, anchor_texts))
            corrected = geometry_labels(images, texts, anchor_images, anchor_texts, form=self.label_form)
        return torch.where(clean, 1.0, corrected)

    def _anchors(self, network: int, images: Tensor, texts: Tensor, ledger: Ledger) -> tuple[Tensor, Tensor]:
        """Clean pairs of this batch, and of those before it if they are remembered."""
        if not self.anchor_memory:
            return images, texts
        remembered = []
        for side, new in (("images", images), ("texts", texts)):
            old = ledger.notes.get(f"anchor_{side}{network}", new[:0].cpu()).to(new.device)
            kept = remember_anchors(old, new, self.anchor_memory)
            ledger.notes[f"anchor_{side}{network}"] = kept.cpu()
            remembered.append(kept)
        return remembered[0], remembered[1]
