"""The folder an audit writes: what is in it, how it is read back, and which pairs its verdicts leave."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truepair.audit.export import Selection
from truepair.audit.review import Decision
from truepair.errors import DataError
from truepair.pairs.core import Pairs
from truepair.pairs.readers import load_pairs

SUSPECTS, SUMMARY, REPORT, DECISIONS = "suspects.parquet", "summary.json", "report.html", "decisions.jsonl"
_PICTURES = ("picture", "other_picture")


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found. suspects: one row a pair. summary: what summary.json holds. folder: None if not written."""

    suspects: pl.DataFrame
    summary: dict[str, Any]
    folder: Path | None = None


def read_audit(folder: str | Path) -> Audit:
    """Read a finished audit back. Paths of pictures come out so that they can be opened."""
    folder = Path(folder)
    path = folder / SUMMARY
    if not path.exists():
        raise DataError(
            folder,
            f"is not a finished audit (it has no {SUMMARY}).",
            "Run `truepair audit DATA --out` first.",
        )
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Audit(with_pictures(pl.read_parquet(folder / SUSPECTS), folder, stored=False), summary, folder)


def with_pictures(suspects: pl.DataFrame, folder: Path, *, stored: bool) -> pl.DataFrame:
    """The table with the paths of pictures as they are stored, from the folder, or as they can be opened."""

    def moved(picture: str | None) -> str | None:
        if not picture:
            return None
        return os.path.relpath(picture, folder) if stored else os.path.normpath(folder / picture)

    columns = [
        pl.Series(name, [moved(picture) for picture in suspects[name]], dtype=pl.String)
        for name in _PICTURES
        if name in suspects.columns
    ]
    return suspects.with_columns(columns)


def reload_pairs(audit: Audit) -> Pairs:
    """The pairs that were audited, read again. Data that has changed since is refused."""
    pairs = pairs_of(audit.summary["load"])
    if list(pairs.ids) != audit.suspects["pair_id"].to_list():
        raise DataError(
            pairs.provenance.sources[0].path,
            f"these are not the pairs that were audited in {audit.folder}.",
            "Run `truepair audit` again.",
        )
    return pairs


def pairs_of(load: Mapping[str, Any]) -> Pairs:
    """The pairs that a summary's `load` names: arguments of load_pairs, or the run whose training pairs they are."""
    if "run" not in load:
        return load_pairs(load["path"], **{name: value for name, value in load.items() if name != "path"})
    from truepair.training.config import TrainConfig
    from truepair.training.fit import training_pairs
    from truepair.training.run import Run

    return training_pairs(TrainConfig.from_json(Run(Path(load["run"])).config["config"]))


def chosen_pairs(
    pairs: Pairs, suspects: pl.DataFrame, decisions: Mapping[str, Decision], *, rematch: bool
) -> Selection:
    """The pairs to keep, and with which image. People's decisions come before the audit's verdict.

    rematch: keep flagged pairs, too, whose best other image the audit is sure of, with that image.
    """
    flagged = suspects["is_mismatch"].to_numpy()
    kept = ~flagged
    image_of = pairs.image_of.copy()
    if rematch:
        confident = flagged & suspects["is_rematch"].to_numpy()
        kept |= confident
        image_of[confident] = suspects["other_image_row"].fill_null(-1).to_numpy()[confident]
    if decisions:
        row_of = {pair_id: row for row, pair_id in enumerate(suspects["pair_id"])}
        image_row_of = {name: row for row, name in enumerate(pairs.image_ids)}
        for decision in decisions.values():
            row = row_of.get(decision.pair_id)
            if row is None:  # of an earlier audit of other data
                continue
            kept[row] = decision.decision != "drop"
            image_of[row] = pairs.image_of[row]
            if decision.decision == "rematch":
                if decision.image_id not in image_row_of:
                    raise DataError(
                        DECISIONS,
                        f"pair {decision.pair_id} is to be rematched with '{decision.image_id}', an unknown image.",
                        "Correct the line, or decide again.",
                    )
                image_of[row] = image_row_of[decision.image_id]
    rows = np.flatnonzero(kept)
    return Selection(rows, image_of[rows])
