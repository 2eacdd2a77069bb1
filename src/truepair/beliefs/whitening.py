"""The coordinates in which the linear witness works: centred, of unit length, along the principal axes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.moments import Moments

Vectors = NDArray[np.float32]
WIDTH = 512
"""Most axes to keep. More cost time and say nothing that a few thousand pairs could confirm."""


@dataclass(frozen=True)
class Axes:
    """Where vectors are centred, and their principal axes.

    center: d, of the raw vectors. middle: d, of the unit vectors. vectors: d x w. spread: w, the variance along each
    axis, 1 on average.
    """

    center: NDArray[np.float64]
    middle: NDArray[np.float64]
    vectors: Vectors
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, blocks: Iterable[NDArray[Any]], again: Iterable[NDArray[Any]]) -> "Axes":
        """The axes of vectors that come in blocks, n x d; they are gone through twice."""
        sums = [(len(block), block.sum(0, dtype=np.float64)) for block in blocks]
        center = sum(total for _, total in sums) / sum(count for count, _ in sums)
        moments = reduce(add, (Moments.of(unit(block - center.astype(np.float32))) for block in again))
        variances, vectors = np.linalg.eigh(moments.covariance)
        kept = slice(None, -min(WIDTH, len(variances)) - 1, -1)
        average = max(float(variances[kept].mean()), 1e-12)
        return cls(
            center,
            moments.mean,
            (vectors[:, kept] / np.sqrt(average)).astype(np.float32),
            np.maximum(variances[kept] / average, 0.0),
        )

    def __call__(self, vectors: Vectors, directions: Vectors | None = None) -> Vectors:
        """Coordinates of raw vectors, n x w with unit variance on average; along these directions (w x r) if given."""
        # Composed first: the directions are few, and the vectors may be very many.
        along = self.vectors if directions is None else self.vectors @ directions
        centred = unit(vectors - self.center.astype(np.float32)) - self.middle.astype(np.float32)
        return np.asarray(centred @ along, dtype=np.float32)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Vectors scaled to length one; zero stays zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]  # spares a copy of all vectors
    return np.asarray(vectors / np.maximum(lengths, 1e-12))
