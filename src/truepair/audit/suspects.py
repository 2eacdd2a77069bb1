"""From an audit's result to its files' contents: the table of suspects and the summary."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truepair.audit.result import AuditResult, Proposals
from truepair.audit.sections import calibration_error
from truepair.evaluation.identification import identification
from truepair.pairs.core import Pairs

SURE = 0.9  # how confident a proposal must be to be applied without anybody looking
_BINS = 60


def suspects_table(pairs: Pairs, result: AuditResult) -> pl.DataFrame:
    """One row a pair, in the order of the data; docs/audit.md describes the columns."""
    text_row, image_row = result.other_text.rows, result.other_image.rows
    columns: dict[str, Any] = {
        "pair_id": list(pairs.ids),
        "image_id": [pairs.image_ids[image] for image in pairs.image_of],
        "image_row": pairs.image_of,
        "picture": _taken(pairs.picture_paths, pairs.image_of),
        "text": list(pairs.texts) if len(pairs.texts) else [None] * len(pairs),
        "match_score": result.match_score,
        "mismatch_probability": result.mismatch_probability,
        "is_mismatch": result.is_mismatch,
        "other_text_pair_id": _taken(pairs.ids, text_row),
        "other_text": _taken(pairs.texts if len(pairs.texts) else None, text_row),
        "other_text_confidence": _confidence(result.other_text),
        "other_image_id": _taken(pairs.image_ids, image_row),
        "other_image_row": pl.Series(image_row).replace(-1, None),
        "other_picture": _taken(pairs.picture_paths, image_row),
        "other_image_confidence": _confidence(result.other_image),
        "is_rematch": result.is_mismatch & (image_row >= 0) & (result.other_image.confidence >= SURE),
        "unsupported_words": [list(words) for words in result.unsupported],
    }
    if pairs.mismatched is not None:
        columns["truly_mismatched"] = pairs.mismatched
    names = ("picture", "text", "other_text_pair_id", "other_text", "other_image_id", "other_picture")
    words = {"unsupported_words": pl.List(pl.String)}
    return pl.DataFrame(columns, schema_overrides={**dict.fromkeys(names, pl.String), **words})


def findings(pairs: Pairs, result: AuditResult, suspects: pl.DataFrame) -> dict[str, Any]:
    """The part of the summary that the data answers."""
    return {
        "pairs": len(pairs),
        "images": len(np.unique(pairs.image_of)),
        "estimated_share": result.share,
        "interval": list(result.interval),
        "diagnostic": asdict(result.diagnostic),
        "error_rate": result.error_rate,
        "flagged": int(result.is_mismatch.sum()),
        "rematch_proposals": int(suspects["is_rematch"].sum()),
        "truth": _truth(pairs, result, suspects),
        "scores": _histogram(result.scores, result.null_scores),
    }


def _truth(pairs: Pairs, result: AuditResult, suspects: pl.DataFrame) -> dict[str, Any] | None:
    """How the verdicts agree with the truth; None where it is not known."""
    wrong, truth = pairs.mismatched, pairs.true_image_of
    if wrong is None or truth is None:
        return None
    by_flag = identification(result.is_mismatch, wrong)
    ranked = identification(1.0 - result.match_score, wrong)
    applied = suspects["is_rematch"].to_numpy()
    right = result.other_image.rows == truth
    return {
        "share": float(wrong.mean()),
        "precision": by_flag.mismatched.precision,
        "recall": by_flag.mismatched.recall,
        "f1": by_flag.mismatched.f1,
        "auc": ranked.auc,
        "average_precision": ranked.average_precision,
        "calibration_error": calibration_error(result.mismatch_probability, wrong),
        "true_image_first": _mean(right[wrong]),
        "sure_proposals_right": _mean(right[applied]),
    }


def _mean(values: NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None


def _histogram(scores: NDArray[np.float64], null_scores: NDArray[np.float64]) -> Mapping[str, list[float]]:
    """Both distributions over the same bins, enough for a chart."""
    low, high = (float(edge(np.concatenate([scores, null_scores]))) for edge in (np.min, np.max))
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    return {
        "edges": edges.tolist(),
        "given": np.histogram(scores, edges)[0].tolist(),
        "null": np.histogram(null_scores, edges)[0].tolist(),
    }


def _taken(values: Any, rows: NDArray[np.int64]) -> list[str | None]:
    """The value at each row; None where there are no values, no row, or nothing at the row."""
    if values is None:
        return [None] * len(rows)
    return [values[row] or None if row >= 0 else None for row in rows.tolist()]


def _confidence(proposals: Proposals) -> pl.Series:
    return pl.Series(np.where(proposals.rows >= 0, proposals.confidence, np.nan)).fill_nan(None)
