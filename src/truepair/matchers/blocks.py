"""All pairs of images and texts in blocks: words laid end to end by length, never padded, memory bounded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from truepair.matchers.base import ImageCodes, TextCodes
from truepair.matchers.kernels import ROUND_WORDS, Owners, Span, owners_of

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# How large the largest temporary of a block becomes, in numbers: near the cache of one core on a processor (more was
# slower when measured), larger where launching costs more than memory.
BLOCK_NUMBERS = {"cpu": 2**20}
BLOCK_NUMBERS_ELSEWHERE = 2**25
BLOCK_WORDS = 256
TOGETHER = 16  # images of a block that score goes through one after the other


@dataclass(frozen=True)
class TextBlock:
    """Texts laid end to end, sorted by length. words: t x d. columns: which texts. One span per length."""

    words: Tensor
    owners: Owners
    vectors: Tensor
    columns: Tensor
    spans: list[Span]


def block_numbers(device: torch.device) -> int:
    """The size of a block's largest temporary on this device."""
    return BLOCK_NUMBERS.get(device.type, BLOCK_NUMBERS_ELSEWHERE)


def text_blocks(texts: TextCodes, most_words: int = BLOCK_WORDS) -> Iterator[TextBlock]:
    """Cut the texts into blocks of at most this many words (or one longer text), shortest texts first.

    Zero words fill a block up to a round number; they belong to no span.
    """
    lengths, order = texts.lengths.cpu().sort(stable=True)
    flat, width = texts.words.flatten(0, 1), texts.words.shape[1]
    for start, stop in _cuts(lengths.tolist(), most_words):
        columns, counts = order[start:stop], lengths[start:stop]
        starts = counts.cumsum(0) - counts
        within = torch.arange(int(counts.sum())) - starts.repeat_interleave(counts)
        index = (columns * width).repeat_interleave(counts) + within
        columns = columns.to(flat.device)
        words = flat.index_select(0, index.to(flat.device))
        words = torch.cat([words, words.new_zeros(-len(words) % ROUND_WORDS, words.shape[1])])
        yield TextBlock(
            words=words,
            owners=owners_of(counts, len(words), words.device),
            vectors=texts.vectors[columns],
            columns=columns,
            spans=spans_of(counts),
        )


def _cuts(lengths: list[int], most_words: int) -> Iterator[tuple[int, int]]:
    """Where blocks start and stop."""
    start, words = 0, 0
    for i, length in enumerate(lengths):
        if words + length > most_words and i > start:
            yield start, i
            start, words = i, 0
        words += length
    if lengths:
        yield start, len(lengths)


def spans_of(lengths: Tensor) -> list[Span]:
    """One span per length. lengths: of texts laid end to end, sorted."""
    spans, text, word = [], 0, 0
    for length, count in _runs(lengths):
        spans.append(Span(slice(text, text + count), slice(word, word + count * length), length))
        text, word = text + count, word + count * length
    return spans


def _runs(lengths: Tensor) -> Iterator[tuple[int, int]]:
    """The distinct lengths of a sorted list, each with its number of texts."""
    distinct, counts = torch.unique_consecutive(lengths, return_counts=True)
    return zip(distinct.tolist(), counts.tolist(), strict=True)


def image_blocks(images: ImageCodes, width: int) -> list[ImageCodes]:
    """Cut the images so that a block's largest temporary stays within its size.

    width: how many numbers it has for every image and word.
    """
    return _split(images, max(1, block_numbers(images.regions.device) // (BLOCK_WORDS * max(1, width))))


def image_groups(images: ImageCodes, width: int) -> list[ImageCodes]:
    """Few images for many words: what goes through one call where it is cut further, to single images."""
    return _split(images, TOGETHER) if on_processor(images) else image_blocks(images, width)


def on_processor(images: ImageCodes) -> bool:
    """Whether launching costs little and caches are small."""
    return images.regions.device.type == "cpu"


def _split(images: ImageCodes, step: int) -> list[ImageCodes]:
    # Splits, not slices: in the backward pass every slice would fill a gradient for all images.
    regions, vectors = torch.split(images.regions, step), torch.split(images.vectors, step)
    masks = [None] * len(regions) if images.mask is None else torch.split(images.mask, step)
    return [ImageCodes(*parts) for parts in zip(regions, vectors, masks, strict=True)]


def score_matrix(
    images: ImageCodes,
    texts: TextCodes,
    score: Callable[[ImageCodes, TextBlock], Tensor],
    *,
    width: int,
    all_images: bool = False,
    one_by_one: bool = False,
) -> Tensor:
    """n x m, in the order given. score: some images (or all at once) with a block of texts, rows x columns.

    width: how many numbers the largest temporary of score has for every image and word. one_by_one: whether score
    goes through its images one after the other where that pays, on a processor: few images, many words then.
    """
    parts, columns, most_words = [], [], BLOCK_WORDS
    cut = image_groups if one_by_one else image_blocks
    rows = [images] if all_images else cut(images, width)
    if one_by_one and on_processor(images):
        most_words = max(BLOCK_WORDS, block_numbers(images.regions.device) // 2 // width)
    for block in text_blocks(texts, most_words):
        parts.append(torch.cat([score(part, block) for part in rows]))
        columns.append(block.columns)
    return torch.cat(parts, dim=1)[:, torch.cat(columns).argsort()]


def score_pairs(
    images: ImageCodes,
    texts: TextCodes,
    rows: Tensor,
    columns: Tensor,
    score: Callable[[ImageCodes, TextCodes, Tensor], Tensor],
) -> Tensor:
    """One value per listed pair. score: p images, p texts of one length, their p places in the list; p values."""
    lengths = texts.lengths[columns]
    parts, places = [], []
    for length in torch.unique(lengths).tolist():
        pairs = (lengths == length).nonzero().squeeze(1)
        numbers = images.regions[0].numel() + length * texts.words.shape[-1]
        for some in pairs.split(max(1, block_numbers(rows.device) // numbers)):
            parts.append(score(images.take(rows[some]), texts.take(columns[some]), some))
            places.append(some)
    if not parts:
        return images.vectors.new_zeros(0)
    return torch.cat(parts)[torch.cat(places).argsort()]


def recomputed(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call, and make what lies in between again in the backward pass instead of keeping it."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    result: Result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return result
