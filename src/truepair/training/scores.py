"""Similarities of a batch on demand: all of them, or only the pairs a loss looks at."""

from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
from torch import Tensor

from truepair.losses.triplet import Negatives, hardest_negatives, triplet, triplet_from_scores
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.processes import count
from truepair.training.processes import gather_rows, share


def autocast(device: torch.device, mixed: bool) -> AbstractContextManager[object]:
    """Mixed precision on this device, or whatever holds already. Not accelerate's, which is fixed for a process."""
    return torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext()


class Scores:
    """The similarities between the images and the texts of one batch, n x n, matched pairs on the diagonal."""

    def __init__(
        self, matcher: Matcher, images: ImageCodes, texts: TextCodes, *, mixed: bool = False
    ) -> None:
        """mixed: whether the matcher computes them in mixed precision; what losses make of them is float32."""
        self.matcher, self.images, self.texts, self.mixed = matcher, images, texts, mixed

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def logits(self) -> Tensor:
        """Scores before a final sigmoid, with gradient, n x n."""
        with autocast(self.images.vectors.device, self.mixed):
            if count() == 1:
                return self.matcher.logits(self.images, self.texts)
            # Shared by texts, because SAF's statistics of a text run over all images.
            own = self.texts.take(share(len(self)))
            return gather_rows(self.matcher.logits(self.images, own).T, len(self)).T

    @cached_property
    def similarity(self) -> Tensor:
        """Published scores, with gradient, n x n."""
        return self.matcher.score(self.logits.float())

    @cached_property
    def constant(self) -> Tensor:
        """Published scores without a gradient, n x n."""
        if "similarity" in self.__dict__ or not self.matcher.pairs_are_costly:
            return self.similarity.detach()
        with torch.no_grad():
            return Scores(self.matcher, self.images, self.texts, mixed=self.mixed).similarity

    def pairs(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Published scores of the listed pairs, with gradient."""
        if "similarity" in self.__dict__ or not self.matcher.pairs_are_costly:
            return self.similarity[rows, columns]
        own = share(len(rows))
        with autocast(self.images.vectors.device, self.mixed):
            logits = self.matcher.pair_logits(self.images, self.texts, rows[own], columns[own])
        return gather_rows(self.matcher.score(logits.float()), len(rows))

    def triplet(self, margin: float | Tensor, negatives: Negatives = "hardest") -> Tensor:
        """Triplet loss per pair; hardest negatives build a graph for the pairs they touch only."""
        if negatives != "hardest" or not self.matcher.pairs_are_costly:
            return triplet(self.similarity, margin, negatives)
        picked = hardest_negatives(self.constant, margin)
        own = torch.arange(len(self), device=picked.columns.device)
        rows, columns = torch.cat([own, own, picked.rows]), torch.cat([own, picked.columns, own])
        matched, hard_text, hard_image = self.pairs(rows, columns).chunk(3)
        return triplet_from_scores(matched, hard_text, hard_image, margin, picked)
