"""The re-pairing null: which pairs are mismatched, when mismatches can be made at will.

A mismatched pair is a random re-pairing, so the scores of random re-pairings ARE the distribution of the
mismatched scores. Of the density of the given scores, f = share * f0 + (1 - share) * f1, only the matched part f1
is unknown, and nothing has to be guessed about it to know f0 / f. Works for the scores of any matcher that has
not learnt from the pairs it scores.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, ndtri

from truepair.beliefs.share import Kind, mismatched_share
from truepair.errors import TruepairError

Array = NDArray[np.float64]
_CELL, _REACH = 0.1, 3.5
_CURVATURE = 0.2
"""How much the logit of the probability may bend: a standard deviation, per unit of the scale and root of its length.
Anything between a half and twice this is about as well calibrated."""
_STEPS = 50


def mismatch_probability(scores: Array, null_scores: Array, share: float | None = None) -> Array:
    """The probability that each pair is mismatched, share * f0(s) / f(s), never rising with the score.

    scores: n, of the given pairs. null_scores: m, of random re-pairings of the same items under the same model.
    share: of mismatched pairs among the given; estimated when None.

    On the scale on which the null is standard normal, the logit of the probability is taken to bend little: it would
    be a straight line if matched scores were normal there with the same spread. A line that is fitted to logits stays
    unbiased where one that is fitted to smoothed densities would flatten, among the surest pairs.
    """
    scores, null_scores = finite(scores, "scores"), finite(null_scores, "null scores")
    share = mismatched_share(scores, null_scores) if share is None else share
    if share <= 0:
        return np.zeros(len(scores))
    edges = np.arange(-_REACH, _REACH + _CELL / 2, _CELL)
    # Whatever lies further out counts at the ends: of well separated data that is where the matched pairs are.
    placed, placed_null = (
        np.clip(normal_scale(values, null_scores), -_REACH, _REACH) for values in (scores, null_scores)
    )
    given, null = (np.histogram(places, edges)[0].astype(np.float64) for places in (placed, placed_null))
    null *= len(scores) / len(null_scores)
    logits = _fitted_logits(given, share * null)
    weights = given + null + 1e-9
    falling = isotonic_regression(logits, weights=weights, increasing=False).x
    middles = (edges[1:] + edges[:-1]) / 2
    return np.asarray(expit(np.interp(placed, middles, np.asarray(falling, dtype=np.float64))))


def _fitted_logits(given: Array, mismatched: Array) -> Array:
    """The logit of mismatched / given in every cell of the scale, smoothed.

    given: counts of the given pairs, taken to be Poisson; mismatched: how many of them are expected to be mismatched.
    The most likely logits under a normal prior on their curvature, by Fisher scoring.
    """
    there = mismatched > 0
    bends = np.diff(np.eye(len(given)), 2, axis=0)
    # The small multiple of the identity keeps the level and the slope defined where hardly any pair is.
    prior = bends.T @ bends / (_CURVATURE**2 * _CELL**3) + 1e-6 * np.eye(len(given))

    def expected(logits: Array) -> Array:
        return np.asarray(mismatched * (1.0 + np.exp(-logits)))

    def loss(logits: Array) -> float:
        means = expected(logits)
        fit = means[there].sum() - (given[there] * np.log(means[there])).sum()
        return float(fit + logits @ prior @ logits / 2)

    logits = np.linspace(_REACH, -_REACH, len(given))
    current = loss(logits)
    for _ in range(_STEPS):
        means, change = expected(logits), -mismatched * np.exp(-logits)
        slope = np.where(there, change * (1.0 - given / np.maximum(means, 1e-300)), 0.0) + prior @ logits
        information = np.diag(np.where(there, change**2 / np.maximum(means, 1e-300), 0.0)) + prior
        step = np.linalg.solve(information, slope)
        tried = [np.clip(logits - step / 2**halving, -30.0, 30.0) for halving in range(12)]
        better = next((new for new in tried if loss(new) < current), None)
        if better is None:
            break
        logits, before, current = better, current, loss(better)
        if before - current < 1e-6:
            break
    return logits


def normal_scale(scores: Array, null_scores: Array) -> Array:
    """Scores on the scale on which the null is standard normal."""
    nearest = 0.5 / len(null_scores)
    return np.asarray(ndtri(np.clip(rank_in_null(scores, null_scores), nearest, 1.0 - nearest)))


def rank_in_null(scores: Array, null_scores: Array) -> Array:
    """The share of random re-pairings that score lower, in [0, 1]; equal scores count one half."""
    ordered = np.sort(null_scores)
    below = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(below / (2 * len(ordered)), dtype=np.float64)


def flag(probability: Array, error_rate: float, kind: Kind = "random") -> NDArray[np.bool_]:
    """The pairs to call mismatched: each of them wrongly with a probability of at most error_rate.

    kind: of the noise, as `estimate_share` finds it. None are flagged where the data as a whole shows no sign of
    mismatches, or where the scores can hardly tell given pairs from random ones.
    """
    if not 0 < error_rate < 1:
        raise TruepairError(f"The error rate must lie between 0 and 1; it is {error_rate}.")
    if kind in ("none", "undecided"):
        return np.zeros(len(probability), dtype=np.bool_)
    return np.asarray(probability >= 1.0 - error_rate)


def finite(values: Any, name: str) -> Array:
    """The values as a list of float64; an error that names the row when one is NaN or infinite."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise TruepairError(
            f"The {name} must be a list of at least one number; their shape is {values.shape}."
        )
    bad = ~np.isfinite(values)
    if bad.any():
        raise TruepairError(
            f"{bad.sum():,} of {len(values):,} {name} are not finite numbers (first at row {int(bad.argmax())}). "
            "Look for NaN among the features, or for diverged training."
        )
    return np.asarray(values)
