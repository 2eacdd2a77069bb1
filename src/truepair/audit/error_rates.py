"""What would be flagged at other error rates: the choice that whoever uses an audit has to make."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from truepair.beliefs.null import flag
from truepair.beliefs.share import Kind

RATES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class AtRate:
    """What is flagged at an error rate.

    wrong: the share of the flagged pairs that the audit believes to be wrong. precision, recall: the share that truly
    is, and how many of all wrong pairs these are, where that is known. None where nothing is counted.
    """

    rate: float
    flagged: int
    wrong: float | None
    precision: float | None = None
    recall: float | None = None


def at_rate(suspects: pl.DataFrame, kind: Kind, rate: float, column: str = "mismatch_probability") -> AtRate:
    """What is flagged at one error rate, by the probabilities in a column of the suspects' table."""
    probability = suspects[column].to_numpy()
    flagged = flag(probability, rate, kind)
    count = int(flagged.sum())
    wrong = float(probability[flagged].mean()) if count else None
    if "truly_mismatched" not in suspects.columns:
        return AtRate(rate, count, wrong)
    truth = suspects["truly_mismatched"].to_numpy().astype(np.bool_)
    found, every = int((flagged & truth).sum()), int(truth.sum())
    return AtRate(rate, count, wrong, found / count if count else None, found / every if every else None)


def at_rates(suspects: pl.DataFrame, kind: Kind) -> list[AtRate]:
    """The same at the usual rates."""
    return [at_rate(suspects, kind, rate) for rate in RATES]


def advice(suspects: pl.DataFrame, kind: Kind, share: float, error_rate: float) -> str | None:
    """What to say where few of the wrong pairs are certain enough to be flagged: the rate that finds half of them."""
    wrong = share * len(suspects)
    if wrong < 1 or at_rate(suspects, kind, error_rate).flagged >= 0.1 * wrong:
        return None
    larger = [found for found in at_rates(suspects, kind) if found.rate > error_rate and found.flagged]
    if not larger:
        return None
    enough = [found for found in larger if found.flagged * (found.wrong or 0) >= 0.5 * wrong]
    best = min(enough, key=lambda found: found.rate) if enough else larger[-1]
    assert best.wrong is not None
    return (
        f"Few pairs are certain enough to be flagged at an error rate of {error_rate:.0%}: the features say too little "
        f"about the others. With --error-rate {best.rate:g} it would be {best.flagged:,} pairs, of which about "
        f"{best.wrong:.0%} are wrong: more to look at, and to review before they are left out."
    )
