"""Altered inputs for training: some words and some regions of every pair are hidden (VSE-infinity, CRCL)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """How much is altered. What happens follows from the seed of a batch alone.

    share: of the words, half of which become `masked`, a tenth a random word, the others are removed; and of the
    regions, which are hidden by the mask. Every text keeps a word and every image a region.
    vocabulary_size: how many words a random one is drawn from; None leaves texts alone (text vectors).
    """

    share: float = 0.2
    vocabulary_size: int | None = None
    masked: int = 0

    def texts(self, tokens: Tensor, lengths: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """tokens: m x t word numbers, zero past the length. lengths: m."""
        if self.vocabulary_size is None:
            return tokens, lengths
        generator = torch.Generator().manual_seed(seed)
        real = torch.arange(tokens.shape[1]) < lengths[:, None]
        fate = torch.rand(tokens.shape, generator=generator) / self.share
        drawn = torch.randint(1, self.vocabulary_size, tokens.shape, generator=generator)
        altered = torch.where(fate < 0.5, self.masked, torch.where(fate < 0.6, drawn, tokens))
        kept = real & ~((fate >= 0.6) & (fate < 1))
        kept[:, 0] |= ~kept.any(1)
        # Kept words move to the front, in their order.
        order = (~kept).long().argsort(dim=1, stable=True)
        lengths = kept.sum(1)
        tokens = altered.gather(1, order)[:, : int(lengths.max())]
        return tokens.masked_fill(torch.arange(tokens.shape[1]) >= lengths[:, None], 0), lengths

    def regions(self, mask: Tensor, seed: int) -> Tensor:
        """The regions that stay. mask: n x k, True where a region is real."""
        generator = torch.Generator().manual_seed(seed + 1)
        luck = torch.rand(mask.shape, generator=generator).masked_fill(~mask, -1.0)
        best = luck.argmax(1, keepdim=True)
        return (mask & (luck >= self.share)).scatter(1, best, mask.gather(1, best))
