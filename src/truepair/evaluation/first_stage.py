"""Vectors whose products predict exact scores, fitted in closed form where every pair was scored.

Matchers of words and regions learn their global vectors only as a part of something larger, and these rank badly on
their own. But together with the means of regions and words they hold enough to predict the scores: a ridge regression
of all logits on all products of an image's and a text's features has a closed form, because the pairs are a whole
matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from truepair.evaluation.two_stage import Scores
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.encoders import mean_over

Vectors = NDArray[np.float64]

# How much a weight costs, in parts of the features' mean square; images are fewer than texts, so theirs cost more.
_RIDGE = 0.03
_IMAGES_MORE = 10.0
_CONSTANT = 0.3  # beside features of unit length: an item that scores high with everything


@dataclass(frozen=True)
class FirstStage:
    """image_mean: d. text_mean: e. weights: (d + 1) x (e + 1), of the products of features and a constant."""

    image_mean: Vectors
    text_mean: Vectors
    weights: Vectors

    @classmethod
    def fit(cls, images: Vectors, texts: Vectors, target: Scores) -> "FirstStage":
        """images: n x d. texts: m x e. target: n x m."""
        image_mean, text_mean = images.mean(axis=0), texts.mean(axis=0)
        a, b = _with_constant(images - image_mean), _with_constant(texts - text_mean)
        left = np.linalg.solve(_ridged(a, _RIDGE * _IMAGES_MORE), a.T @ target @ b)
        return cls(image_mean, text_mean, np.linalg.solve(_ridged(b, _RIDGE), left.T).T)

    def vectors(self, images: Vectors, texts: Vectors) -> tuple[Vectors, Vectors]:
        """Of images, n x (e + 1), and of texts, m x (e + 1); not of unit length."""
        left = _with_constant(images - self.image_mean) @ self.weights
        return left, _with_constant(texts - self.text_mean)


def crossed(
    images: Vectors, texts: Vectors, target: Scores, owners: NDArray[np.int64], folds: int = 5
) -> Vectors:
    """The products of a fit for data it has not seen, n x m.

    Images are dealt to folds with their texts. An entry is the mean of two fits', one that has not seen the image's
    fold and one that has not seen the text's: so no query is judged with its own match by a fit that has seen that.
    """
    of_image = np.arange(len(images)) % min(folds, len(images))
    of_text = of_image[owners]
    found = np.zeros((len(images), len(texts)))
    for fold in range(of_image.max() + 1):
        rows, columns = of_image != fold, of_text != fold
        fitted = FirstStage.fit(images[rows], texts[columns], target[rows][:, columns])
        left, right = fitted.vectors(images, texts)
        found[~rows] += left[~rows] @ right.T / 2
        found[:, ~columns] += left @ right[~columns].T / 2
    return found


def features(
    matchers: Sequence[Matcher], codes: Sequence[tuple[ImageCodes, TextCodes]]
) -> tuple[Vectors, Vectors]:
    """Global vectors and unit means of regions and words, of all networks side by side: of images and of texts."""
    images, texts = [], []
    with torch.inference_mode():
        for matcher, (i, t) in zip(matchers, codes, strict=True):
            images.append(matcher.image_vectors(i))
            texts.append(matcher.text_vectors(t))
            if matcher.has_parts:
                images.append(_unit(mean_over(i.regions, i.mask)))
                texts.append(_unit(t.words.sum(dim=1) / t.lengths[:, None]))
    return _side_by_side(images), _side_by_side(texts)


def logits(scores: Scores) -> Scores:
    """What scores look like before a sigmoid, kept finite."""
    inside = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    return np.asarray(np.log(inside / (1 - inside)))


def _ridged(features: Vectors, ridge: float) -> Vectors:
    products = features.T @ features
    cost = ridge * np.trace(products) / len(products)
    return np.asarray(products + cost * np.eye(len(products)))


def _with_constant(features: Vectors) -> Vectors:
    return np.concatenate([features, np.full((len(features), 1), _CONSTANT)], axis=1)


def _unit(means: Tensor) -> Tensor:
    return torch.nn.functional.normalize(means, dim=-1)


def _side_by_side(parts: list[Tensor]) -> Vectors:
    return np.asarray(torch.cat([part.double() for part in parts], dim=1).cpu().numpy())
