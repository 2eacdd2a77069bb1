"""Canonical correlation between images and texts, and how well an image and a text agree under it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.moments import CrossMoments, Moments
from truepair.beliefs.whitening import Axes, Vectors, unit

RANK = 128
"""Canonical directions kept; the later ones are weighted by next to nothing."""
Index = NDArray[np.int64]
_BLOCK = 65_536
_ENOUGH = 100_000


@dataclass(frozen=True)
class Canonical:
    """Directions of images (w x r) and texts (v x r) that correlate most, each scaled by its correlation."""

    images: Vectors
    texts: Vectors

    @classmethod
    def fit(cls, cross: CrossMoments, images: Axes, texts: Axes, ridge: float) -> "Canonical":
        """Closed form. ridge: what is added to every variance, in units of the mean variance."""
        scale_i, scale_t = 1 / np.sqrt(images.spread + ridge), 1 / np.sqrt(texts.spread + ridge)
        whitened = (scale_i[:, None] * cross.mean * scale_t).astype(np.float32)
        # The singular value decomposition by way of the smaller side, which is several times cheaper.
        turned = len(whitened) > whitened.shape[1]
        whitened = whitened.T if turned else whitened
        _, left = np.linalg.eigh(whitened @ whitened.T)
        left = left[:, ::-1][:, :RANK]
        right = whitened.T @ left  # already scaled by the correlations
        left = left * np.linalg.norm(right, axis=0)
        left, right = (right, left) if turned else (left, right)
        return cls(
            (scale_i[:, None] * left).astype(np.float32), (scale_t[:, None] * right).astype(np.float32)
        )


class Agreement:
    """Agreement of the images and texts of a group, standardised for each image and each text.

    Some pictures agree with every text and some texts with every picture. So the cosine of the two codes is compared
    with its mean and spread over all texts of the group for this image, and over all images for this text; both
    follow from sums of outer products.
    """

    def __init__(self, images: Vectors, texts: Vectors) -> None:
        """images: n x r and texts: m x r, codes in the canonical space."""
        self.images, self.texts = unit(images), unit(texts)
        self._of_image = _expected(self.images, _moments(self.texts))
        self._of_text = _expected(self.texts, _moments(self.images))

    def __call__(self, image: Index, text: Index) -> NDArray[np.float64]:
        """The agreement of the listed images and texts, p."""
        cosine = np.einsum("pd,pd->p", self.images[image], self.texts[text])
        (mean_i, spread_i), (mean_t, spread_t) = self._of_image, self._of_text
        by_image = (cosine - mean_i[image]) / spread_i[image]
        by_text = (cosine - mean_t[text]) / spread_t[text]
        return np.asarray(by_image + by_text, dtype=np.float64)

    def all(self, texts: Index, images: slice = slice(None)) -> NDArray[np.float32]:
        """The agreement of the listed texts with every image, or with a slice of them, texts x images."""
        (mean_i, spread_i), (mean_t, spread_t) = self._of_image, self._of_text
        mean_i, spread_i = mean_i[images], spread_i[images]
        # The same sum as above in another order, which spares whole matrices in double precision.
        scores = self.texts[texts] @ self.images[images].T
        scores *= (1 / spread_t[texts, None]).astype(np.float32) + (1 / spread_i).astype(np.float32)
        scores -= (mean_t[texts, None] / spread_t[texts, None]).astype(np.float32)
        scores -= (mean_i / spread_i).astype(np.float32)
        return np.asarray(scores, dtype=np.float32)

    def repaired(
        self, image: Index, times: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], Index]:
        """Agreement of random re-pairings of the texts, text t being given with image[t], and their images."""
        rows = np.arange(len(image))
        scores, images = [np.zeros(0)], [np.zeros(0, np.int64)]
        for _ in range(times):
            other = image[rng.permutation(rows)]
            differs = other != image
            scores.append(self(other[differs], rows[differs]))
            images.append(other[differs])
        return np.concatenate(scores), np.concatenate(images)


def _moments(codes: Vectors) -> Moments:
    """Moments of codes; of every second, third, ... where they are so many that it makes no difference."""
    return Moments.of(codes[:: max(1, len(codes) // _ENOUGH)])


def _expected(codes: Vectors, others: Moments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and spread of each code's cosine with the others."""
    mean = (codes @ others.mean.astype(codes.dtype)).astype(np.float64)
    covariance = others.covariance.astype(codes.dtype)
    variance = np.zeros(len(codes))
    for start in range(0, len(codes), _BLOCK):  # codes of a million texts need no second copy
        part = codes[start : start + _BLOCK]
        variance[start : start + _BLOCK] = np.einsum("nd,nd->n", part @ covariance, part)
    return mean, np.sqrt(np.maximum(variance, 1e-9)).astype(np.float64)
