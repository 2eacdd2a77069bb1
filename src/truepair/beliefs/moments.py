"""Sums of outer products: all that the linear witness keeps of the data. They add up over blocks and machines."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Moments:
    """How many vectors, their sum (d) and the sum of their outer products (d x d), in float64."""

    count: float
    total: NDArray[np.float64]
    outer: NDArray[np.float64]

    @classmethod
    def of(cls, vectors: NDArray[Any]) -> "Moments":
        """Moments of a block of vectors, n x d."""
        return cls(len(vectors), vectors.sum(0, dtype=np.float64), (vectors.T @ vectors).astype(np.float64))

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.total + other.total, self.outer + other.outer)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean vector, d."""
        return self.total / self.count

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance, d x d."""
        return self.outer / self.count - np.outer(self.mean, self.mean)


@dataclass(frozen=True)
class CrossMoments:
    """Weighted sum of the outer products of images and texts (d x e) and the sum of the weights."""

    weight: float
    outer: NDArray[np.float64]

    @classmethod
    def of(cls, images: NDArray[Any], texts: NDArray[Any], weights: NDArray[Any]) -> "CrossMoments":
        """Of a block of pairs: images n x d, texts n x e, weights n."""
        weighted = images * weights[:, None].astype(images.dtype)
        return cls(float(weights.sum()), (weighted.T @ texts).astype(np.float64))

    def __add__(self, other: "CrossMoments") -> "CrossMoments":
        return CrossMoments(self.weight + other.weight, self.outer + other.outer)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The weighted mean outer product, d x e."""
        return self.outer / max(self.weight, 1e-12)
