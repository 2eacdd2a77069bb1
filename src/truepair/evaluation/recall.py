"""Recall@K, median and mean rank in both directions, by counting instead of sorting.

The rank of a query is the number of *other* items that score at least as high as its best own item. So ties
count against the matcher: the rank is that of the unluckiest sort, it does not depend on the order of the
data, and a matcher that gives one score to everything finds nothing. (The published codes sort unstably, which
makes results with ties a matter of luck; without ties all agree.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from truepair.errors import TruepairError

Matrix = NDArray[Any] | Tensor
Integers = NDArray[np.int64]

# Comparisons are made on pieces of about this many entries, which stay in a processor's cache.
_PIECE = 2**20


@dataclass(frozen=True)
class Recall:
    """One direction. r1, r5, r10: per cent. medr: the floor of the median rank; meanr; both count from 1."""

    r1: float
    r5: float
    r10: float
    medr: float
    meanr: float

    @classmethod
    def of(cls, ranks: Integers) -> "Recall":
        """From ranks that count from 0; negative ones are no queries."""
        asked = ranks[ranks >= 0]
        r1, r5, r10 = (100.0 * int((asked < k).sum()) / len(asked) for k in (1, 5, 10))
        return cls(r1, r5, r10, float(np.floor(np.median(asked)) + 1), float(asked.mean() + 1))


@dataclass(frozen=True)
class Retrieval:
    """Both directions, image to text and text to image, and the sum of the six recalls."""

    i2t: Recall
    t2i: Recall
    rsum: float = field(init=False)

    def __post_init__(self) -> None:
        total = sum(side.r1 + side.r5 + side.r10 for side in (self.i2t, self.t2i))
        object.__setattr__(self, "rsum", total)


class Ranks(NamedTuple):
    """Ranks from 0. i2t: n, of every image's best own text, -1 without any text. t2i: m, of a text's image."""

    i2t: Integers
    t2i: Integers

    def retrieval(self) -> Retrieval:
        """The recalls."""
        return Retrieval(Recall.of(self.i2t), Recall.of(self.t2i))


def recall(similarity: Matrix, image_of: ArrayLike) -> Retrieval:
    """Recalls of a similarity matrix, images x texts. image_of: m, the image that every text belongs to."""
    return ranks(similarity, image_of).retrieval()


def ranks(similarity: Matrix, image_of: ArrayLike) -> Ranks:
    """Ranks in a similarity matrix, images x texts, numpy or torch on any device; it is not copied whole."""
    n, m = similarity.shape
    image_of = checked_image_of(image_of, n, m)
    counter = RankCounter(image_of, n)
    counter.know(slice(0, m), own_scores(similarity, image_of))
    for rows, piece in _pieces(similarity):
        counter.add(rows, slice(0, m), piece)
    return counter.ranks()


def first_retrieved(similarity: Matrix) -> tuple[Integers, Integers]:
    """The best text of every image and the best image of every text; the first of tied ones."""
    n, m = similarity.shape
    texts, images, highest = np.empty(n, np.int64), np.zeros(m, np.int64), np.full(m, -np.inf)
    for rows, piece in _pieces(similarity):
        texts[rows] = piece.argmax(axis=1)
        best = piece.argmax(axis=0)
        scores = piece[best, np.arange(m)]
        better = scores > highest
        images[better], highest[better] = best[better] + rows.start, scores[better]
    return texts, images


class RankCounter:
    """Counts, block by block, how many items score at least as high as a query's best own one.

    image_of: m, the image of every text.
    """

    def __init__(self, image_of: Integers, n_images: int) -> None:
        self.image_of = image_of
        # In double precision, which holds single precision exactly.
        self.own = np.full(len(image_of), -np.inf)
        self.best = np.full(n_images, -np.inf)
        self._i2t = np.zeros(n_images, dtype=np.int64)
        self._t2i = np.zeros(len(image_of), dtype=np.int64)

    def know(self, columns: slice | Integers, scores: NDArray[Any]) -> None:
        """Say what these texts score with their images, before blocks with these texts or images are added.

        The scores must be entries of the very blocks that are added: one that is computed in another way may
        differ in its last digit and no longer equal itself.
        """
        self.own[columns] = scores
        np.maximum.at(self.best, self.image_of[columns], scores)

    def add(self, rows: slice, columns: slice | Integers, block: NDArray[Any]) -> None:
        """Count a block of images (rows) and texts (columns); every pair is to be added once."""
        best, own = self.best[rows].astype(block.dtype), self.own[columns].astype(block.dtype)
        height = max(1, min(255, _PIECE // max(block.shape[1], 1)))  # 255: the most that a byte can count
        for start in range(0, len(block), height):
            part = slice(start, start + height)
            piece = block[part]
            if np.isnan(piece.max(initial=-np.inf)):
                raise TruepairError(
                    "A similarity is not a number. Check the features (truepair inspect) and the weights."
                )
            not_below = piece >= best[part, None]
            self._i2t[rows.start + start : rows.start + start + len(piece)] += [
                np.count_nonzero(row) for row in not_below
            ]
            np.greater_equal(piece, own, out=not_below)
            self._t2i[columns] += np.add.reduce(not_below.view(np.uint8), axis=0, dtype=np.uint8)

    def ranks(self) -> Ranks:
        """The ranks, when all blocks have been added."""
        # Every count holds the query's own items too: for an image those of its texts that reach the best.
        reached = self.own == self.best[self.image_of]
        own_texts = np.bincount(self.image_of[reached], minlength=len(self.best))
        asked = np.bincount(self.image_of, minlength=len(self.best)) > 0
        return Ranks(np.where(asked, self._i2t - own_texts, -1), self._t2i - 1)


def checked_image_of(image_of: ArrayLike, n_images: int, n_texts: int) -> Integers:
    """The image of every text as integers, after a look at whether they fit the matrix."""
    owners = np.asarray(image_of).astype(np.int64)
    if owners.shape != (n_texts,):
        raise TruepairError(
            f"The similarities have {n_texts} texts, but image_of names the images of {owners.size}."
            " Give one image row for every text."
        )
    if n_texts == 0:
        raise TruepairError("There are no texts to retrieve.")
    if owners.min() < 0 or owners.max() >= n_images:
        raise TruepairError(
            f"image_of runs from {owners.min()} to {owners.max()}, but the similarities have {n_images} images"
            " (rows 0 and up). Rows are images and columns texts; is the matrix transposed?"
        )
    return owners


def own_scores(similarity: Matrix, image_of: Integers) -> NDArray[Any]:
    """The score of every text with its image, m."""
    if isinstance(similarity, Tensor):
        rows = torch.from_numpy(image_of).to(similarity.device)
        return as_array(similarity[rows, torch.arange(len(rows), device=similarity.device)])
    return as_array(similarity[image_of, np.arange(len(image_of))])


def as_array(scores: Matrix) -> NDArray[Any]:
    """Scores as a numpy array in single or double precision, without a copy where they are that already."""
    if isinstance(scores, Tensor):
        kept = scores.dtype in (torch.float32, torch.float64)
        return scores.detach().to("cpu", scores.dtype if kept else torch.float32).numpy()
    return scores if scores.dtype in (np.float32, np.float64) else scores.astype(np.float32)


def _pieces(similarity: Matrix) -> Iterator[tuple[slice, NDArray[Any]]]:
    n, m = similarity.shape
    height = max(1, 16 * _PIECE // max(m, 1))
    for start in range(0, n, height):
        rows = slice(start, min(start + height, n))
        yield rows, as_array(similarity[rows])
