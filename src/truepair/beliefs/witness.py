"""The linear witness: a cross-fitted canonical correlation model that says how well each pair agrees.

Closed form, seconds on a laptop, needs only sums of outer products, and cannot memorise pairs.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.extmath import randomized_svd

from truepair.beliefs.null import mismatch_probability
from truepair.pairs.core import Pairs

Array = NDArray[np.float64]
ROUNDS, FOLDS, RIDGE = 4, 5, 1.0


def witness_prior(pairs: Pairs, seed: int = 0) -> Array:
    """The probability that each pair is mismatched, before anything has been trained."""
    images = pairs.images.astype(np.float32).mean(1)
    if pairs.text_vectors is not None:
        texts = np.asarray(pairs.text_vectors, dtype=np.float32)
    else:
        counts = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2).fit_transform(pairs.texts)
        left, values, _ = randomized_svd(counts, min(300, min(counts.shape) - 1), n_iter=3, random_state=seed)
        texts = left * values
    images, texts = images - images.mean(0), texts - texts.mean(0)
    rng = np.random.default_rng(seed)
    fold = (rng.permutation(len(images)) % FOLDS)[pairs.image_of]
    weights = np.ones(len(pairs))
    for _ in range(ROUNDS):
        scores, nulls = np.zeros(len(pairs)), []
        for k in range(FOLDS):
            rows, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            project_i, project_t = _fit(images[pairs.image_of[rows]], texts[rows], weights[rows])
            a, b = _unit(images[pairs.image_of[held]] @ project_i), _unit(texts[held] @ project_t)
            scores[held] = (a * b).sum(1)
            for _ in range(10):
                other = rng.permutation(len(held))
                differs = pairs.image_of[held] != pairs.image_of[held][other]
                nulls.append((a * b[other]).sum(1)[differs])
        probability = mismatch_probability(scores, np.concatenate(nulls))
        weights = 1.0 - probability
    return probability


def _fit(images: Array, texts: Array, weights: Array) -> tuple[Array, Array]:
    white_i, white_t = _whiten(images), _whiten(texts)
    cross = white_i @ ((images * weights[:, None]).T @ texts / weights.sum()) @ white_t
    left, correlations, right = np.linalg.svd(cross, full_matrices=False)
    return white_i @ left * correlations, white_t @ right.T * correlations


def _whiten(x: Array) -> Array:
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    return (vectors / np.sqrt(values + RIDGE * values.mean())) @ vectors.T


def _unit(x: Array) -> Array:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
