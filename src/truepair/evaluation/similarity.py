"""Similarities of any size, block by block under a memory limit; ranks without ever holding the matrix."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from truepair.errors import TruepairError
from truepair.evaluation.recall import Integers, Matrix, RankCounter, Ranks, as_array, checked_image_of
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.progress import track

Rows = slice | Integers

MEMORY_LIMIT = 2**30
"""Bytes for the scores of one block and for copies of its items. What a matcher needs besides, while it scores,
is bounded by the matcher itself and comes on top."""


@dataclass(frozen=True)
class Scorer:
    """Scores of any images (rows) with any texts (columns) of a set, whoever computes them.

    block: gives the scores of some images and some texts, numpy or torch on any device.
    pair_bytes, image_bytes, text_bytes: how much memory it needs for one pair, and to hold one item.
    """

    n_images: int
    n_texts: int
    block: Callable[[Rows, Rows], Matrix]
    pair_bytes: int = 4
    image_bytes: int = 0
    text_bytes: int = 0

    def take(self, images: Integers, texts: Integers) -> "Scorer":
        """The scorer of these images and texts alone."""

        def block(rows: Rows, columns: Rows) -> Matrix:
            return self.block(_as_slice(images[rows]), _as_slice(texts[columns]))

        return replace(self, n_images=len(images), n_texts=len(texts), block=block)


def matcher_scorer(matcher: Matcher, images: ImageCodes, texts: TextCodes) -> Scorer:
    """The published scores of a matcher over encoded items, on the device where the codes are."""
    if matcher.training:
        raise TruepairError(
            "The matcher is in training mode, where a similarity depends on the other items of its block."
            " Call matcher.eval() first."
        )

    def block(rows: Rows, columns: Rows) -> Matrix:
        with torch.inference_mode():
            return matcher.similarity(
                images.take(_on_device(rows, images)), texts.take(_on_device(columns, texts))
            )

    # Matchers of words and regions keep their own temporaries small; the scores they join three times over.
    sides = (images.regions, texts.words)
    image_bytes, text_bytes = (x.element_size() * x[:1].numel() for x in sides)
    return Scorer(len(images), len(texts), block, 12, image_bytes, text_bytes)


def mean_scorer(scorers: Sequence[Scorer]) -> Scorer:
    """The mean of several scores of the same items: two networks of a co-teaching method, SGR and SAF."""

    def block(rows: Rows, columns: Rows) -> Matrix:
        total = sum(as_array(scorer.block(rows, columns)) for scorer in scorers)
        return np.asarray(total / len(scorers))

    costs = ("pair_bytes", "image_bytes", "text_bytes")
    return replace(scorers[0], block=block, **{c: max(getattr(s, c) for s in scorers) for c in costs})


def similarity_matrix(
    scorer: Scorer, memory_limit: int = MEMORY_LIMIT, *, shown: bool = True
) -> NDArray[np.float32]:
    """All similarities, images x texts; the result itself does not count towards the limit."""
    result = np.empty((scorer.n_images, scorer.n_texts), dtype=np.float32)
    height, width = _block_shape(scorer, memory_limit)
    places = list(product(_slices(scorer.n_images, height), _slices(scorer.n_texts, width)))
    for rows, columns in track(places, "Similarities", len(places), shown=shown):
        result[rows, columns] = as_array(scorer.block(rows, columns))
    return result


def ranks_blockwise(
    scorer: Scorer, image_of: ArrayLike, memory_limit: int = MEMORY_LIMIT, *, shown: bool = True
) -> Ranks:
    """Ranks as `evaluation.recall.ranks` gives them, with one block of similarities in memory at a time.

    Images are taken in groups with all texts of theirs. A group's own block holds the scores that its ranks
    are measured against, so the groups' own blocks come first, and every similarity is computed once. The
    smallest block is one image with its texts, however many.
    """
    owners = checked_image_of(image_of, scorer.n_images, scorer.n_texts)
    groups = _groups(owners, scorer.n_images, *_block_shape(scorer, memory_limit))
    counter = RankCounter(owners, scorer.n_images)
    places = sorted(product(range(len(groups)), repeat=2), key=lambda place: place[0] != place[1])
    for g, h in track(places, "Ranks", len(places), shown=shown):
        rows, columns = groups[g][0], groups[h][1]
        if isinstance(columns, np.ndarray) and not len(columns):
            continue  # images without texts
        block = as_array(scorer.block(rows, columns))
        if g == h:
            own = owners[columns] - rows.start
            counter.know(columns, block[own, np.arange(len(own))])
        counter.add(rows, columns, block)
    return counter.ranks()


def _groups(owners: Integers, n_images: int, height: int, width: int) -> list[tuple[slice, Rows]]:
    """Runs of at most `height` images with all their texts, of which there are at most `width` if possible."""
    order = np.argsort(owners, kind="stable")
    begin = np.searchsorted(owners[order], np.arange(n_images + 1))
    groups: list[tuple[slice, Rows]] = []
    start = 0
    while start < n_images:
        fitting = int(np.searchsorted(begin, begin[start] + width, side="right")) - 1
        end = max(start + 1, min(start + height, fitting))
        groups.append((slice(start, end), _as_slice(order[begin[start] : begin[end]])))
        start = end
    return groups


def _as_slice(rows: Integers) -> Rows:
    """Rows side by side as a slice, which takes codes without copying them."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _block_shape(scorer: Scorer, memory_limit: int) -> tuple[int, int]:
    """How many images and texts make a block: half of the memory for the pairs, a quarter for either side."""
    pairs = memory_limit // 2 // scorer.pair_bytes
    tallest = memory_limit // 4 // max(scorer.image_bytes, 1)
    widest = memory_limit // 4 // max(scorer.text_bytes, 1)
    share = math.sqrt(pairs * scorer.n_images / max(scorer.n_texts, 1))
    height = max(1, min(int(share), pairs, scorer.n_images, tallest))
    return height, max(1, min(pairs // height, scorer.n_texts, widest))


def _slices(n: int, length: int) -> list[slice]:
    return [slice(start, min(start + length, n)) for start in range(0, n, length)]


def _on_device(rows: Rows, codes: ImageCodes | TextCodes) -> slice | torch.Tensor:
    return rows if isinstance(rows, slice) else torch.from_numpy(rows).to(codes.vectors.device)
