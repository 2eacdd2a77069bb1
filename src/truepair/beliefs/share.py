"""How many of the pairs are mismatched, how sure that is, and whether they look like random mismatches."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, ndtr, ndtri

Array = NDArray[np.float64]
Kind = Literal["none", "random", "structured", "undecided"]

LEVELS = np.arange(1, 20) / 20
"""Null quantiles at which the given scores are counted."""
USED = slice(0, 10)
"""The quantiles 5 % .. 50 %, where hardly any matched pair is."""
ALLOWANCE = 0.01
"""Share of matched pairs whose text may say nothing about the picture. People write such captions; no score can tell
them from mismatches, so the interval reaches further down by them."""
BUNCHES, DRAWS = 4000, 400


@dataclass(frozen=True)
class NoiseShare:
    """The share of mismatched pairs.

    share: the estimate; low, high: its 95 % interval. kind: "none" if the interval holds zero, "undecided" if the
    scores cannot tell given pairs from random ones, else "random" or "structured" (wrong, but similar).
    slope: how much larger the estimate is from the upper half of the null's lower half than from its lower fifth;
    slope_error: its standard error. by_level: the estimates at the null quantiles 5 % .. 50 %; flat under random
    noise. separation: probability that a matched pair scores higher than a random re-pairing (an AUC).
    """

    share: float
    low: float
    high: float
    kind: Kind
    slope: float
    slope_error: float
    by_level: Array
    separation: float


def mismatched_share(scores: Array, null_scores: Array) -> float:
    """The share of mismatched pairs: how much of the null's lower half is found among the given scores."""
    given, null = _counts(scores, null_scores)
    return float(_share(_by_level(given, null, _overlap(given, null))))


def estimate_share(
    scores: Array,
    null_scores: Array,
    images: NDArray[np.int64],
    null_images: NDArray[np.int64],
    seed: int = 0,
) -> NoiseShare:
    """The share of mismatched pairs with its interval, a bootstrap over images.

    images: n, the image of each given pair; null_images: m, the image of each re-pairing.
    """
    cuts = np.quantile(null_scores, LEVELS)
    rng = np.random.default_rng(seed)
    bunch_of = _bunches(int(max(images.max(), null_images.max())) + 1, rng)
    bunches = int(bunch_of.max()) + 1
    given, null = (
        _table(s, cuts, bunch_of[i], bunches) for s, i in ((scores, images), (null_scores, null_images))
    )
    all_given, all_null = given.sum(0), null.sum(0)
    overlap = _overlap(all_given, all_null)
    by_level = _by_level(all_given, all_null, overlap)
    draws = rng.poisson(1.0, (DRAWS, len(given))).astype(np.float64)
    drawn = _by_level(draws @ given, draws @ null, overlap)
    # The upper end trusts nothing about matched scores: without them the ratio can only be too high.
    upper = _share(_by_level(draws @ given, draws @ null, np.zeros_like(overlap)))
    low = float(np.quantile(_share(drawn), 0.025)) - ALLOWANCE
    share, high = float(_share(by_level)), float(np.quantile(upper, 0.975))
    slope, slopes = _slope(by_level), _slope(drawn)
    separation, separations = _separation(all_given, share), _mean_rank(draws @ given)
    undecided = float(np.quantile(separations, 0.025)) <= 0.5
    kind: Kind = "random"
    if undecided:
        kind = "undecided"
    elif low <= 0:
        kind = "none"
    elif slope - 1.645 * float(slopes.std()) > ALLOWANCE + 0.1 * share:
        kind = "structured"
    return NoiseShare(
        share, max(0.0, low), max(high, share), kind, float(slope), float(slopes.std()), by_level, separation
    )


def share_beside(
    given: tuple[Array, NDArray[np.int64]],
    null: tuple[Array, NDArray[np.int64]],
    known: tuple[Array, NDArray[np.int64]],
    known_share: float,
    seed: int = 0,
) -> tuple[float, float]:
    """The share of the given scores that are of the null, where a known share of them is of another kind.

    given, null, known: scores and the image of each. Gives the share and the lower end of its 95 % interval.
    """
    cuts = np.quantile(null[0], LEVELS)
    rng = np.random.default_rng(seed)
    bunch_of = _bunches(max(int(images.max()) for _, images in (given, null, known)) + 1, rng)
    bunches = int(bunch_of.max()) + 1
    of_given, of_null, of_known = (
        _table(scores, cuts, bunch_of[images], bunches) for scores, images in (given, null, known)
    )

    def left(given: Array, known: Array) -> Array:
        """The given counts without the known kind."""
        size = given.sum(-1, keepdims=True)
        return np.asarray(
            given - known_share * size * known / np.maximum(known.sum(-1, keepdims=True), 1e-12)
        )

    def share(given: Array, null: Array, known: Array, overlap: Array) -> Array:
        return (1 - known_share) * _share(_by_level(left(given, known), null, overlap))

    overlap = _overlap(np.maximum(left(of_given.sum(0), of_known.sum(0)), 0.0), of_null.sum(0))
    draws = rng.poisson(1.0, (DRAWS, bunches)).astype(np.float64)
    drawn = share(draws @ of_given, draws @ of_null, draws @ of_known, overlap)
    whole = share(of_given.sum(0), of_null.sum(0), of_known.sum(0), overlap)
    return float(whole), float(np.quantile(drawn, 0.025))


def _share(by_level: Array) -> Array:
    return np.asarray(np.clip(np.median(by_level, axis=-1), 0.0, 1.0))


def _slope(by_level: Array) -> Array:
    return np.asarray(by_level[..., 6:].mean(-1) - by_level[..., :4].mean(-1))


def _by_level(given: Array, null: Array, overlap: Array) -> Array:
    """The share seen at each level: the given pairs under it over the re-pairings under it, matched ones taken off."""
    ratio = (np.cumsum(given, -1) / np.maximum(given.sum(-1, keepdims=True), 1e-12))[..., USED] / np.maximum(
        (np.cumsum(null, -1) / null.sum(-1, keepdims=True))[..., USED], 1e-12
    )
    return np.asarray((ratio - overlap) / (1 - overlap))


def _overlap(given: Array, null: Array) -> Array:
    """The same ratio for matched pairs alone, at the levels used.

    On the scale where the null is standard normal the matched scores are taken to be normal too (the binormal model
    of ROC curves); only the part of it under the null's median is used, which is small unless the witness is weak.
    """
    null = null / null.sum()
    edges = np.concatenate([[-np.inf], ndtri(np.clip(np.cumsum(null)[:-1], 1e-9, 1 - 1e-9)), [np.inf]])

    def cells(mean: float, log_spread: float) -> Array:
        return np.asarray(np.diff(ndtr((edges - mean) / np.exp(log_spread))))

    def loss(parameters: Array) -> float:
        share = expit(parameters[0])
        mixed = share * null + (1 - share) * cells(parameters[1], parameters[2])
        # Weak beliefs keep the fit defined when there is nothing to fit: about one spread, about two apart.
        return float(
            -(given * np.log(np.maximum(mixed, 1e-12))).sum()
            + 8 * parameters[2] ** 2
            + (parameters[1] - 2) ** 2 / 2
        )

    starts = [np.array([share, 2.0, 0.0]) for share in (-3.0, 0.0, 2.0)]
    fits = [minimize(loss, start, method="Nelder-Mead", options={"maxiter": 300}) for start in starts]
    _, mean, log_spread = min(fits, key=lambda fit: float(fit.fun)).x
    matched = np.cumsum(cells(mean, log_spread)) / np.maximum(np.cumsum(null), 1e-12)
    return np.asarray(np.clip(matched[USED], 0.0, 0.9))


def _separation(given: Array, share: float) -> float:
    return float(np.clip((_mean_rank(given) - share / 2) / max(1 - share, 1e-3), 0.0, 1.0))


def _mean_rank(given: Array) -> Array:
    middle = (np.concatenate([[0.0], LEVELS]) + np.concatenate([LEVELS, [1.0]])) / 2
    return np.asarray(given @ middle / given.sum(-1))


def _counts(scores: Array, null_scores: Array) -> tuple[Array, Array]:
    cuts = np.quantile(null_scores, LEVELS)
    return (
        _table(scores, cuts, np.zeros(len(scores), dtype=np.int64), 1)[0],
        _table(null_scores, cuts, np.zeros(len(null_scores), dtype=np.int64), 1)[0],
    )


def _table(scores: Array, cuts: Array, bunch: NDArray[np.int64], bunches: int) -> Array:
    """How many scores of each bunch lie in each cell between the cuts, bunches x cells."""
    cells = len(cuts) + 1
    where = bunch * cells + np.searchsorted(cuts, scores, side="left")
    return np.bincount(where, minlength=bunches * cells).reshape(bunches, cells).astype(np.float64)


def _bunches(n_images: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The bunch each image is drawn with: its own, or where there are too many images one of a few thousand."""
    return np.asarray(rng.permutation(n_images) % BUNCHES, dtype=np.int64)
