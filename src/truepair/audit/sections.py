"""What the report's charts show, worked out from the suspects' table, the summary and the runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truepair.audit.charts import Chart, Mark, Series, percent
from truepair.beliefs.mixtures import fit_gaussian, normalise
from truepair.evaluation.identification import auc, average_precision

if TYPE_CHECKING:
    from truepair.training.run import Run

Vector = NDArray[np.float64]
MARKS: tuple[Mark, ...] = ("line", "dashed", "dotted", "line")
_POINTS = 200  # of a curve; more cannot be seen


def score_charts(summary: Mapping[str, Any], suspects: pl.DataFrame) -> list[Chart]:
    """The scores of the given pairs against those of random re-pairings; how the probabilities are spread."""
    charts = []
    if summary.get("scores"):
        edges, given, null = (
            np.asarray(summary["scores"][name], dtype=np.float64) for name in ("edges", "given", "null")
        )
        middle = (edges[1:] + edges[:-1]) / 2
        given, null = given / given.sum(), null / null.sum()
        # A matcher scores wrong pairs that it has learnt by heart higher than random ones: nothing adds up then.
        charts.append(
            _learnt(edges, middle, given, null)
            if summary.get("kind") == "run"
            else _taken_apart(edges, middle, given, null, float(summary["estimated_share"]))
        )
    counts, edges = np.histogram(suspects["mismatch_probability"].to_numpy(), bins=40, range=(0, 1))
    undecided = float(counts[4:36].sum() / max(counts.sum(), 1))
    charts.append(
        Chart(
            "Mismatch probabilities",
            f"{percent(undecided)} of the pairs lie between {percent(0.1, 0)} and {percent(0.9, 0)}: for these the "
            "scores do not decide.",
            "probability that the pair is mismatched",
            "pairs",
            [Series("pairs", edges, counts, "bars", 1)],
            x_range=(0, 1),
        )
    )
    return charts


def _taken_apart(edges: Vector, middle: Vector, given: Vector, null: Vector, share: float) -> Chart:
    """The scores of the given pairs as the sum of a random and a matched part."""
    null = share * null
    return Chart(
        "Scores",
        f"The given pairs (bars) are taken apart into {percent(share)} random re-pairings (dashed), whose "
        "scores are known because re-pairings can be made at will, and the rest: true pairs (line).",
        "score: how well picture and text agree",
        "share of the pairs",
        [
            Series("given pairs", edges, given, "bars", 1),
            Series("mismatched part: random re-pairings", middle, null, "dashed", 2),
            Series("matched part: what is left", middle, np.maximum(given - null, 0), "line", 3),
        ],
    )


def _learnt(edges: Vector, middle: Vector, given: Vector, null: Vector) -> Chart:
    """The scores of a matcher that was trained on the pairs, beside those of random re-pairings."""
    return Chart(
        "Scores",
        "What the matcher says about the given pairs (bars) and about as many random re-pairings (dashed). It was "
        "trained on the given pairs, and the wrong ones that it has learnt score higher than random ones do.",
        "score: how well picture and text agree",
        "share of the pairs",
        [
            Series("given pairs", edges, given, "bars", 1),
            Series("random re-pairings", middle, null, "dashed", 2),
        ],
    )


def identification_charts(suspects: pl.DataFrame) -> list[Chart]:
    """ROC, precision-recall and calibration, where it is known which pairs are wrong; else nothing."""
    if "truly_mismatched" not in suspects.columns:
        return []
    truth = suspects["truly_mismatched"].to_numpy().astype(np.bool_)
    if truth.all() or not truth.any():
        return []
    probability = suspects["mismatch_probability"].to_numpy()
    suspicion = 1.0 - suspects["match_score"].to_numpy()
    flagged = suspects["is_mismatch"].to_numpy()
    right, wrong = int((flagged & truth).sum()), int((flagged & ~truth).sum())
    recall, precision = right / int(truth.sum()), right / max(right + wrong, 1)
    order = np.argsort(-suspicion, kind="stable")
    last_of_tie = np.append(np.diff(suspicion[order]) != 0, True)
    found = np.cumsum(truth[order])[last_of_tie]
    taken = (np.flatnonzero(last_of_tie) + 1).astype(np.float64)
    at = np.unique(np.linspace(0, len(found) - 1, _POINTS).astype(np.int64))
    true_rate = found / truth.sum()
    false_rate = (taken - found) / (~truth).sum()
    area, average = auc(suspicion, truth), average_precision(suspicion, truth)
    chosen = f"flagged here: {right + wrong:,} pairs"
    return [
        Chart(
            "ROC curve",
            f"Area under the curve {area:.3f}: how often a wrong pair is more suspect than a true one.",
            "share of the true pairs flagged",
            "share of the wrong pairs found",
            [
                Series("by suspicion", np.append(0, false_rate[at]), np.append(0, true_rate[at]), "line", 1),
                Series("by chance", [0, 1], [0, 1], "dotted", 4),
                Series(chosen, [wrong / int((~truth).sum())], [recall], "points", 2),
            ],
            (0, 1),
            (0, 1),
        ),
        Chart(
            "Precision and recall",
            f"Average precision {average:.3f}. "
            + (
                f"Of the {right + wrong:,} flagged pairs {percent(precision)} are truly wrong, and they are "
                f"{percent(recall)} of all wrong ones."
                if right + wrong
                else "No pair is flagged."
            ),
            "share of the wrong pairs found (recall)",
            "truly wrong among those (precision)",
            [
                Series("by suspicion", true_rate[at], (found / taken)[at], "line", 1),
                Series("by chance", [0, 1], [truth.mean()] * 2, "dotted", 4),
                Series(chosen, [recall], [precision], "points", 2),
            ],
            (0, 1),
            (0, 1),
        ),
        _calibration(probability, truth),
    ]


def calibration_error(probability: Vector, truth: NDArray[np.bool_], bins: int = 15) -> float:
    """Expected calibration error: the mean gap between probability and frequency over equal bins, by size."""
    expected, actual, counts = calibration(probability, truth, bins)
    return float((np.abs(expected - actual) * counts).sum() / counts.sum())


def calibration(
    probability: Vector, truth: NDArray[np.bool_], bins: int = 15
) -> tuple[Vector, Vector, NDArray[np.int64]]:
    """Mean probability, frequency of the truth and number of pairs of every bin that has any."""
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins)
    full = counts > 0
    expected = np.bincount(place, probability, bins)[full] / counts[full]
    actual = np.bincount(place, truth, bins)[full] / counts[full]
    return expected, actual, counts[full]


def loss_chart(run: "Run", name: str) -> Chart | None:
    """The losses of a finished run's pairs with the two Gaussians that methods divide them by."""
    if not run.finished:
        return None
    losses = normalise(run.ledger()["loss"].drop_nulls().cast(pl.Float64).to_numpy())
    counts, edges = np.histogram(losses, bins=50, range=(0, 1))
    mixture = fit_gaussian(losses)
    middle = (edges[1:] + edges[:-1]) / 2
    low, high = mixture.densities(middle) * len(losses) * (edges[1] - edges[0])
    return Chart(
        f"Losses{name}",
        "Losses of the training pairs after the last epoch, from 0 to 1, and two Gaussians fitted to them "
        f"(weights {mixture.weights[0]:.2f} and {mixture.weights[1]:.2f}).",
        "loss, stretched to 0 to 1",
        "pairs",
        [
            Series("pairs", edges, counts, "bars", 1),
            Series("lower Gaussian", middle, low, "line", 3),
            Series("upper Gaussian", middle, high, "dashed", 2),
        ],
        (0, 1),
        # Where all losses are alike a Gaussian is a needle that would hide the pairs.
        (0, 1.15 * float(counts.max())),
    )


def training_charts(runs: "Mapping[str, Run]") -> list[Chart]:
    """Training loss, validation recall and how well wrong pairs are told apart, epoch by epoch."""
    histories = {name: run.metrics for name, run in runs.items()}
    histories = {name: history for name, history in histories.items() if history}
    if not histories:
        return []
    charts = [
        _over_epochs(
            "Training loss",
            "Mean loss of an epoch's steps; it jumps where a method changes its loss.",
            "loss",
            {
                name: [float(np.mean(entry["loss"])) for entry in history]
                for name, history in histories.items()
            },
        )
    ]
    recalls = {
        name: [float(entry["validation"]["ensemble"]["rsum"]) for entry in history]
        for name, history in histories.items()
        if all("validation" in entry for entry in history)
    }
    if recalls:
        best = ", ".join(f"{name}: {max(values):.1f}" for name, values in recalls.items())
        charts.append(
            _over_epochs(
                "Validation recall", f"Sum of the six recalls in percent; best {best}.", "rSum", recalls
            )
        )
    return charts


def _over_epochs(title: str, reads: str, y_label: str, values: Mapping[str, Sequence[float]]) -> Chart:
    series = [
        Series(name, np.arange(1, len(line) + 1), line, MARKS[place % len(MARKS)], place % 4 + 1)
        for place, (name, line) in enumerate(values.items())
    ]
    return Chart(title, reads, "epoch", y_label, series)


def _calibration(probability: Vector, truth: NDArray[np.bool_]) -> Chart:
    expected, actual, _ = calibration(probability, truth)
    return Chart(
        "Calibration",
        f"How often pairs of a probability are truly wrong; mean error {calibration_error(probability, truth):.3f}.",
        "probability that the audit gives",
        "truly wrong among them",
        [
            Series("pairs in 15 groups", expected, actual, "points", 1),
            Series("perfect", [0, 1], [0, 1], "dotted", 4),
        ],
        (0, 1),
        (0, 1),
    )
