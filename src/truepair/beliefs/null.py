"""The re-pairing null: which pairs are mismatched, when mismatches can be made at will.

A mismatched pair is a random re-pairing, so the scores of random re-pairings ARE the distribution of the
mismatched scores. Of the density of the given scores, f = share * f0 + (1 - share) * f1, only the matched part f1
is unknown, and nothing has to be guessed about it to know f0 / f. Works for the scores of any matcher that has
not learnt from the pairs it scores.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from truepair.beliefs.share import Kind, mismatched_share
from truepair.errors import TruepairError

Array = NDArray[np.float64]
_CELL = 0.05


def mismatch_probability(scores: Array, null_scores: Array, share: float | None = None) -> Array:
    """The probability that each pair is mismatched, share * f0(s) / f(s), never rising with the score.

    scores: n, of the given pairs. null_scores: m, of random re-pairings of the same items under the same model.
    share: of mismatched pairs among the given; estimated when None.
    """
    scores, null_scores = finite(scores, "scores"), finite(null_scores, "null scores")
    share = mismatched_share(scores, null_scores) if share is None else share
    return np.clip(share * density_ratio(scores, null_scores), 0.0, 1.0)


def density_ratio(scores: Array, null_scores: Array) -> Array:
    """f0(s) / f(s) at each given score, non-increasing in the score.

    Isotonic regression of "null or given" on the score, both kinds having the same total weight, after both were
    smoothed on the scale on which the null is normal. Without smoothing the lowest step is where chance left out
    most matched pairs, and too many pairs look surely wrong.
    """
    edges = np.arange(-6.0, 6.0 + _CELL, _CELL)
    # Narrower for more pairs, as for any density; given and null scores together spread over about two units.
    width = float(np.clip(2.0 * len(scores) ** -0.2, 0.1, 0.6)) / _CELL
    placed, placed_null = _normal_scale(scores, null_scores), _normal_scale(null_scores, null_scores)
    given, null = (
        gaussian_filter1d(np.histogram(places, edges)[0] / len(places), width, mode="constant")
        for places in (placed, placed_null)
    )
    there = given + null > 0
    both = (given + null)[there]
    fitted = isotonic_regression(null[there] / both, weights=both, increasing=False).x
    middles = (edges[1:] + edges[:-1]) / 2
    of_given = np.interp(placed, middles[there], np.asarray(fitted, dtype=np.float64))
    return np.asarray(of_given / np.maximum(1.0 - of_given, 1e-12))


def _normal_scale(scores: Array, null_scores: Array) -> Array:
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
