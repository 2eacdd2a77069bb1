"""Two-component mixtures of per-pair losses: the lower component is taken for the clean pairs.

Gaussian as in DivideMix, NCR and ReCon; Beta as in BiCro and GSL. Both fits are deterministic, work on
distinct values with counts, and count more values than `bins` into a histogram first: expectation
maximisation then costs the same for any number of pairs. Where there is nothing to divide, because all values
are equal or one component is left with less than half a pair, all pairs are low.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln

from truepair.errors import TruepairError

Vector = NDArray[np.float64]
Two = tuple[float, float]
Start = Literal["fixed", "median"]

BINS = 8192
EMPTY = 0.5
_PIECE = 2**14


@dataclass(frozen=True)
class GaussianMixture2:
    """Two Gaussians, the lower mean first. iterations: how many steps the fit took."""

    means: Two
    variances: Two
    weights: Two
    iterations: int

    def posterior(self, values: ArrayLike) -> Vector:
        """The probability that each value comes from the lower component, the shape of values."""
        x = _finite(values)
        if 0 in self.weights:
            return np.full(x.shape, self.weights[0])
        # The logarithm of the odds is a parabola: a d^2 + b d + c, d counted from the lower mean.
        (low, high), (narrow, wide) = self.means, self.variances
        a, b = 0.5 / wide - 0.5 / narrow, (low - high) / wide
        c = float(self._log_weighted(np.array(low), 0) - self._log_weighted(np.array(low), 1))

        def low_share(x: Vector) -> Vector:
            distance = x - low
            odds = distance * a
            odds += b
            odds *= distance
            odds += c
            return _logistic(odds)

        return _in_pieces(low_share, x)

    def densities(self, values: ArrayLike) -> Vector:
        """The weighted density of each component, 2 x the shape of values."""
        x = _finite(values)
        return np.stack([np.exp(self._log_weighted(x, k)) if self.weights[k] else 0 * x for k in (0, 1)])

    def density(self, values: ArrayLike) -> Vector:
        """The density of the mixture, the shape of values."""
        return np.asarray(self.densities(values).sum(axis=0))

    def _log_weighted(self, x: Vector, k: int) -> Vector:
        return _log_weighted_gaussian(x, self.means[k], self.variances[k], self.weights[k])


@dataclass(frozen=True)
class BetaMixture2:
    """Two Beta distributions on [0, 1], the lower mean first."""

    alpha: Two
    beta: Two
    weights: Two

    @property
    def means(self) -> Two:
        """The mean of each component."""
        low, high = (a / (a + b) for a, b in zip(self.alpha, self.beta, strict=True))
        return low, high

    def posterior(self, values: ArrayLike) -> Vector:
        """The probability that each value comes from the lower component, the shape of values.

        A value that neither component explains goes to the nearer mean; the published code, which adds 1e-12
        to the density, always calls it noisy. Where a density is infinite (a loss of exactly 0 when
        alpha < 1) this is the limit, so that the cleanest of all pairs is clean; the published code divides
        infinity by infinity there and calls that pair noisy, too.
        """
        x = _inside_unit_interval(values)
        if 0 in self.weights:
            return np.full(x.shape, self.weights[0])
        return _in_pieces(self._posterior, x)

    def _posterior(self, x: Vector) -> Vector:
        low, high = _weighted_betas(*_beta_logs(x), self.alpha, self.beta, self.weights)
        high += low
        high += 1e-12
        low += 1e-12 * (x < sum(self.means) / 2)
        low /= high
        return np.asarray(low)

    def densities(self, values: ArrayLike) -> Vector:
        """The weighted density of each component, 2 x the shape of values."""
        x = _inside_unit_interval(values)
        return _weighted_betas(*_beta_logs(x), self.alpha, self.beta, self.weights)

    def density(self, values: ArrayLike) -> Vector:
        """The density of the mixture, the shape of values."""
        return np.asarray(self.densities(values).sum(axis=0))


def normalise(losses: ArrayLike) -> Vector:
    """Stretch values to [0, 1]: (x - min) / (max - min). All values equal give zeros."""
    x = _finite(losses)
    if x.size == 0:
        return x
    low, high = x.min(), x.max()
    return (x - low) / (high - low) if high > low else np.zeros_like(x)


def fit_gaussian(
    values: ArrayLike,
    *,
    iterations: int = 10,
    tolerance: float = 1e-2,
    variance_floor: float = 5e-4,
    bins: int | None = BINS,
) -> GaussianMixture2:
    """Fit two Gaussians by expectation maximisation from the best split in two (1-D 2-means, found exactly).

    values: n, min-max normalised losses. The defaults are those of the published codes, which stop far from
    convergence: when the mean log-likelihood moves by less than tolerance. variance_floor is added to every
    variance. bins: more values than that are binned, which moves posteriors by less than 1e-3 (never with
    None).
    """
    x, counts = _distinct(_finite(values), bins)
    if len(x) == 1:
        return _one_gaussian(float(x[0]), variance_floor, 0)
    low = (np.arange(len(x)) < _best_split(x, counts)).astype(np.float64)
    means, variances, weights = _gaussian_moments(x, counts, low, variance_floor)
    likelihood, steps = -np.inf, 0
    for _ in range(iterations):
        steps += 1
        log_low, log_high = (_log_weighted_gaussian(x, means[k], variances[k], weights[k]) for k in (0, 1))
        before, likelihood = likelihood, float(np.average(np.logaddexp(log_low, log_high), weights=counts))
        share = _logistic(log_low - log_high)
        means, variances, weights = _gaussian_moments(x, counts, share, variance_floor)
        if abs(likelihood - before) < tolerance:
            break
    if min(weights) * counts.sum() < EMPTY:
        kept = int(weights[1] > weights[0])
        return _one_gaussian(means[kept], variances[kept], steps)
    if means[0] > means[1]:
        means, variances, weights = means[::-1], variances[::-1], weights[::-1]
    return GaussianMixture2(means, variances, weights, steps)


def fit_beta(
    values: ArrayLike,
    *,
    iterations: int = 10,
    clip: float = 1e-4,
    start: Start = "fixed",
    bins: int | None = BINS,
) -> BetaMixture2:
    """Fit two Beta distributions by expectation maximisation with weighted moments (BiCro, after Arazo).

    values: n, in [0, 1]; inside the fit they are moved into [clip, 1 - clip], where every density is finite.
    start: "fixed", the published Beta(1, 2) and Beta(2, 1) whatever the values, or "median", the moments of the
    values below and above it, which finds the better maximum where few values are large.
    bins: more values than that are binned, which moves posteriors by less than 1e-3 (never with None).
    """
    x, counts = _distinct(np.clip(_inside_unit_interval(values), clip, 1 - clip), bins)
    if len(x) == 1:
        return _one_beta(*_beta_from_moments(x[0], 0.0))
    alpha, beta, weights = (1.0, 2.0), (2.0, 1.0), (0.5, 0.5)
    if start == "median":
        # Half of the pairs each; a value that holds the median is shared.
        below = np.clip((counts.sum() / 2 - (counts.cumsum() - counts)) / counts, 0, 1)
        alpha, beta, weights = _beta_moments(x, np.stack([below, 1 - below]) * counts)
    logs = _beta_logs(x)
    for _ in range(iterations):
        densities = _weighted_betas(*logs, alpha, beta, weights)
        # The floor of the published code: it keeps a component that explains nothing from vanishing.
        shares = np.maximum(densities, 1e-12)
        shares *= counts / shares.sum(axis=0)
        alpha, beta, weights = _beta_moments(x, shares)
    if min(weights) * counts.sum() < EMPTY:
        kept = int(weights[1] > weights[0])
        return _one_beta(alpha[kept], beta[kept])
    # The published code takes the component that began as the lower one, wherever it has ended.
    fitted = BetaMixture2(alpha, beta, weights)
    if fitted.means[0] > fitted.means[1]:
        return BetaMixture2(alpha[::-1], beta[::-1], weights[::-1])
    return fitted


def _beta_moments(x: Vector, shares: Vector) -> tuple[Two, Two, Two]:
    """Parameters and weights of two Betas. shares: 2 x n, how much of each value belongs to which."""
    mass = shares.sum(axis=1)
    means = shares @ x / mass
    variances = [share @ (x - mean) ** 2 / m for share, mean, m in zip(shares, means, mass, strict=True)]
    (a0, b0), (a1, b1) = (_beta_from_moments(m, v) for m, v in zip(means, variances, strict=True))
    return (a0, a1), (b0, b1), _two(mass / mass.sum())


def _finite(values: ArrayLike) -> Vector:
    x = np.asarray(values, dtype=np.float64)
    bad = ~np.isfinite(x)
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise TruepairError(
            f"{int(bad.sum())} of {x.size} values are not finite, the first at position {where}"
            f" ({x.flat[where]}). A mixture cannot be fitted to them; look for the cause (a diverged network,"
            " a NaN in the features) or set those pairs aside."
        )
    return x


def _inside_unit_interval(values: ArrayLike) -> Vector:
    x = _finite(values)
    if x.size and (x.min() < 0 or x.max() > 1):
        raise TruepairError(
            f"A Beta mixture lives on [0, 1], but the values run from {x.min():g} to {x.max():g}."
            " Stretch them with normalise() first."
        )
    return x


def _distinct(x: Vector, bins: int | None) -> tuple[Vector, Vector]:
    """Distinct values in rising order and their counts; of many values equal bins at the mean of theirs."""
    if x.size == 0:
        raise TruepairError("There are no values to fit a mixture to.")
    if bins is None or x.size <= bins:
        values, times = np.unique(x, return_counts=True)
        return values, times.astype(np.float64)
    x = x.ravel()
    low, high = x.min(), x.max()
    if low == high:
        return np.array([low]), np.array([float(x.size)])
    counts, sums = np.zeros(bins), np.zeros(bins)
    for start in range(0, x.size, _PIECE):
        piece = x[start : start + _PIECE]
        place = np.minimum(((piece - low) * (bins / (high - low))).astype(np.int64), bins - 1)
        counts += np.bincount(place, minlength=bins)
        sums += np.bincount(place, weights=piece, minlength=bins)
    full = counts > 0
    return sums[full] / counts[full], counts[full]


def _best_split(x: Vector, counts: Vector) -> int:
    """How many of the rising values belong to the lower of two clusters with the least squared error."""
    mass, total = np.cumsum(counts), np.cumsum(counts * x)
    n, s = mass[:-1], total[:-1]
    explained = s**2 / n + (total[-1] - s) ** 2 / (mass[-1] - n)
    return int(np.argmax(explained)) + 1


def _gaussian_moments(x: Vector, counts: Vector, low: Vector, floor: float) -> tuple[Two, Two, Two]:
    shares = np.stack([low, 1 - low]) * counts
    # The smallest of masses instead of none, so that an empty component keeps finite parameters.
    mass = shares.sum(axis=1) + 10 * np.finfo(np.float64).eps
    means = shares @ x / mass
    variances = np.sum(shares * (x - means[:, None]) ** 2, axis=1) / mass + floor
    return _two(means), _two(variances), _two(mass / mass.sum())


def _one_gaussian(mean: float, variance: float, steps: int) -> GaussianMixture2:
    return GaussianMixture2((mean, mean), (variance, variance), (1.0, 0.0), steps)


def _one_beta(alpha: float, beta: float) -> BetaMixture2:
    return BetaMixture2((alpha, alpha), (beta, beta), (1.0, 0.0))


def _in_pieces(function: Callable[[Vector], Vector], x: Vector) -> Vector:
    """The function of every value, a piece at a time that stays in a processor's cache, temporaries included."""
    result, values = np.empty(x.size), x.ravel()
    for start in range(0, x.size, _PIECE):
        piece = slice(start, start + _PIECE)
        result[piece] = function(values[piece])
    return result.reshape(x.shape)


def _logistic(x: Vector) -> Vector:
    """1 / (1 + exp(-x)) in a quarter of the time that scipy's takes; x is used up."""
    np.negative(x, out=x)
    with np.errstate(over="ignore"):  # infinity stands for a probability of 0
        np.exp(x, out=x)
    x += 1
    return np.reciprocal(x, out=x)


def _log_weighted_gaussian(x: Vector, mean: float, variance: float, weight: float) -> Vector:
    logs = np.asarray(x - mean)
    logs *= logs
    logs *= -0.5 / variance
    logs += np.log(weight) - 0.5 * np.log(2 * np.pi * variance)
    return logs


def _beta_logs(x: Vector) -> tuple[Vector, Vector]:
    # At 0 and 1 a density may be infinite; just beside them it is only huge, and a ratio has its limit.
    return np.log(np.maximum(x, 1e-300)), np.log(np.maximum(1 - x, 1e-300))


def _weighted_betas(log_x: Vector, log_rest: Vector, alpha: Two, beta: Two, weights: Two) -> Vector:
    densities = np.empty((2, *log_x.shape))
    for density, a, b, weight in zip(densities, alpha, beta, weights, strict=True):
        np.multiply(log_x, a - 1, out=density)
        density += (b - 1) * log_rest
        density -= betaln(a, b)
        np.exp(density, out=density)
        density *= weight
    return densities


def _beta_from_moments(mean: float, variance: float) -> Two:
    # All of a component's values equal: a narrow peak instead of a division by zero.
    concentration = mean * (1 - mean) / max(variance, 1e-9) - 1
    return float(mean * concentration), float((1 - mean) * concentration)


def _two(pair: Vector) -> Two:
    return float(pair[0]), float(pair[1])
