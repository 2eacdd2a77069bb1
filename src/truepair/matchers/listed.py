"""Many listed pairs, image by image: as in a block, the words of all texts meet an image's regions in one product.

Taking the codes of every pair on its own costs more than scoring it. A shortlist names hundreds of texts an image.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from truepair.matchers.base import ImageCodes, TextCodes
from truepair.matchers.blocks import block_numbers, on_processor
from truepair.matchers.kernels import Owners, owners_of

ROUND_WORDS = 256  # few shapes: the products compile for every new one
FROM_TEXTS = 16  # an image; with fewer, pairs of one length together are faster, whatever their images


@dataclass(frozen=True)
class OneImage:
    """Some texts of one image, shortest first. image: its row. words: t x d laid end to end, then padding."""

    image: int
    words: Tensor
    owners: Owners
    count: int
    """Words without the padding."""


@dataclass(frozen=True)
class Chunk:
    """Pairs of a few images. places: p, where they stand in the list. lengths: p, of their texts."""

    places: Tensor
    lengths: Tensor
    images: list[OneImage]

    def by_length(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs with texts of one length: which of the chunk's, p, and where their words lie, p x t."""
        starts = self.lengths.cumsum(0) - self.lengths
        for length in torch.unique(self.lengths).tolist():
            which = (self.lengths == length).nonzero().squeeze(1)
            yield which, starts[which, None] + torch.arange(length)


def pays(images: ImageCodes, rows: Tensor) -> bool:
    """Whether pairs with these images are better scored image by image: on a processor, without gradients."""
    enough = FROM_TEXTS * max(1, len(torch.unique(rows)))
    return on_processor(images) and not torch.is_grad_enabled() and len(rows) >= enough


def chunks(texts: TextCodes, rows: Tensor, columns: Tensor, similarity: int) -> Iterator[Chunk]:
    """All pairs, cut so that no temporary grows large. similarity: how many numbers a chunk keeps for every word."""
    flat, width = texts.words.flatten(0, 1), texts.words.shape[1]
    numbers = 2 * block_numbers(rows.device)  # half and twice as much took longer when measured
    most_of_image, most = (max(ROUND_WORDS, numbers // size) for size in (flat.shape[1], similarity))
    lengths = texts.lengths[columns]
    order = (rows * (width + 1) + lengths).argsort(stable=True)
    lengths = lengths[order]
    parts = _parts(rows[order], lengths, most_of_image)
    for some in _together(parts, lengths, most):
        images = []
        for start, stop in some:
            counts = lengths[start:stop]
            total = int(counts.sum())
            before = counts.cumsum(0) - counts
            index = (columns[order[start:stop]] * width - before).repeat_interleave(counts)
            index = F.pad(index + torch.arange(total), (0, -total % ROUND_WORDS))
            words = flat.index_select(0, index)
            owners = owners_of(counts, len(words), words.device)
            images.append(OneImage(int(rows[order[start]]), words, owners, total))
        whole = slice(some[0][0], some[-1][1])
        yield Chunk(order[whole], lengths[whole], images)


def _parts(rows: Tensor, lengths: Tensor, most: int) -> list[tuple[int, int]]:
    """Runs of pairs of one image with about so many words. rows: p, sorted."""
    _, counts = torch.unique_consecutive(rows, return_counts=True)
    before = lengths.cumsum(0) - lengths
    of_image = before[counts.cumsum(0) - counts].repeat_interleave(counts)
    part = torch.stack([rows, (before - of_image) // most], dim=1)
    _, counts = torch.unique_consecutive(part, dim=0, return_counts=True)
    ends = counts.cumsum(0).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _together(parts: list[tuple[int, int]], lengths: Tensor, most: int) -> Iterator[list[tuple[int, int]]]:
    """Neighbouring parts with at most so many words together, or one larger part."""
    words = [0, *lengths.cumsum(0).tolist()]
    some: list[tuple[int, int]] = []
    for part in parts:
        if some and words[part[1]] - words[some[0][0]] > most:
            yield some
            some = []
        some.append(part)
    if some:
        yield some
