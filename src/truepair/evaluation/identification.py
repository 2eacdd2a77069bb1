"""How well wrong pairs are found, where it is known which ones are wrong."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from truepair.errors import TruepairError


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one class, in [0, 1]; None where nothing is there to be divided by."""

    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Identification:
    """How a division into mismatched and matched pairs agrees with the truth.

    auc: the probability that a mismatched pair has the higher score of the two, ties counting one half.
    average_precision: the mean over mismatched pairs of the precision among all pairs that score no lower.
    Both are None without scores, or where the truth has one class only.
    """

    mismatched: ClassScores
    matched: ClassScores
    auc: float | None
    average_precision: float | None
    pairs: int
    mismatched_pairs: int
    flagged_pairs: int
    rightly_flagged_pairs: int
    threshold: float | None


def identification(belief: ArrayLike, mismatched: ArrayLike, threshold: float = 0.5) -> Identification:
    """Compare what is believed about every pair with the truth.

    belief: n, mismatch probabilities (any score that rises with suspicion), flagged where they exceed the
    threshold; or n bools, the flags themselves. mismatched: n bools, the truth.
    """
    scores, truth = np.asarray(belief), np.asarray(mismatched).astype(bool)
    if scores.shape != truth.shape or scores.ndim != 1:
        raise TruepairError(
            f"There are {scores.shape} beliefs and {truth.shape} truths; one of each is needed for every pair."
        )
    if not np.isfinite(scores).all():
        raise TruepairError(
            "A belief is not a finite number. Leave out the pairs that nothing is known about."
        )
    ranked = scores.dtype != np.bool_
    flags = scores > threshold if ranked else scores
    return Identification(
        mismatched=_class_scores(flags, truth),
        matched=_class_scores(~flags, ~truth),
        auc=auc(scores, truth) if ranked else None,
        average_precision=average_precision(scores, truth) if ranked else None,
        pairs=len(truth),
        mismatched_pairs=int(truth.sum()),
        flagged_pairs=int(flags.sum()),
        rightly_flagged_pairs=int((flags & truth).sum()),
        threshold=threshold if ranked else None,
    )


def auc(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float | None:
    """The area under the ROC curve from ranks; ties count one half. None where a class is missing."""
    above = int(positive.sum())
    below = len(positive) - above
    if not above or not below:
        return None
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - above * (above + 1) / 2) / (above * below))


def average_precision(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float | None:
    """The mean precision at the positives; tied pairs are taken together. None where a class is missing."""
    if positive.all() or not positive.any():
        return None
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(positive[order])
    # Precision where the last of the tied pairs is in, for each of them.
    falling = scores[order]
    last = np.searchsorted(-falling, -falling, side="right") - 1
    precision = found[last] / (last + 1)
    return float(precision[positive[order]].mean())


def _class_scores(flags: NDArray[np.bool_], truth: NDArray[np.bool_]) -> ClassScores:
    right, flagged, there = int((flags & truth).sum()), int(flags.sum()), int(truth.sum())
    return ClassScores(_ratio(right, flagged), _ratio(right, there), _ratio(2 * right, flagged + there))


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
