"""The re-pairing null: how many pairs are mismatched, and which, when mismatches can be made at will.

A mismatched pair is a random re-pairing, so the scores of random re-pairings ARE the distribution of the
mismatched scores. Of the observed density f = share * f0 + (1 - share) * f1 only the matched part f1 is unknown.
Works for the scores of any matcher that has not learnt from the pairs it scores.
"""

import numpy as np
from numpy.typing import NDArray

from truepair.errors import TruepairError

Array = NDArray[np.float64]


def mismatch_probability(scores: Array, null_scores: Array, share: float | None = None) -> Array:
    """The probability that each pair is mismatched, share * f0(s) / f(s), never rising with the score.

    scores: n, of the given pairs. null_scores: m, of random re-pairings of the same items under the same model.
    share: of mismatched pairs among the given; estimated when None.
    """
    scores, null_scores = _finite(scores, "scores"), _finite(null_scores, "null scores")
    share = mismatched_share(scores, null_scores) if share is None else share
    return np.clip(share * density_ratio(scores, null_scores), 0.0, 1.0)


def mismatched_share(scores: Array, null_scores: Array) -> float:
    """The share of mismatched pairs: how much of the null's lower half is found among the given scores."""
    levels = np.linspace(0.05, 0.5, 10)
    cuts = np.quantile(null_scores, levels)
    below = np.searchsorted(np.sort(scores), cuts, side="right") / len(scores)
    below_null = np.searchsorted(np.sort(null_scores), cuts, side="right") / len(null_scores)
    return float(np.clip(np.median(below / below_null), 0.0, 1.0))


def density_ratio(scores: Array, null_scores: Array) -> Array:
    """f0(s) / f(s) at each given score, non-increasing in the score.

    Isotonic regression of "null or given" on the score; both kinds have the same total weight.
    """
    values = np.concatenate([scores, null_scores])
    is_null = np.concatenate([np.zeros(len(scores)), np.ones(len(null_scores))])
    weights = np.concatenate(
        [np.full(len(scores), 1 / len(scores)), np.full(len(null_scores), 1 / len(null_scores))]
    )
    levels, which = np.unique(values, return_inverse=True)
    weight = np.bincount(which, weights, len(levels))
    share_of_null = np.bincount(which, weights * is_null, len(levels)) / weight
    fitted = falling_fit(share_of_null, weight)[which[: len(scores)]]
    return fitted / np.maximum(1.0 - fitted, 1e-12)


def falling_fit(values: Array, weights: Array) -> Array:
    """The non-increasing sequence nearest to the values in weighted squares (pool adjacent violators)."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(values, weights=weights, increasing=False).x, dtype=np.float64)


def _finite(values: Array, name: str) -> Array:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise TruepairError(
            f"The {name} must be a list with at least one number; their shape is {values.shape}."
        )
    bad = ~np.isfinite(values)
    if bad.any():
        raise TruepairError(
            f"{bad.sum():,} of {len(values):,} {name} are not finite numbers (first at row {int(bad.argmax())}). "
            "Look for NaN among the features or diverged training."
        )
    return values
