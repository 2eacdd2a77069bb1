"""From data or a run to a finished audit: the verdicts, the files, the report."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from truepair import __version__
from truepair.audit.export import MADE_BY, pairs_table, write_captions, write_data, write_parquet
from truepair.audit.folder import (
    DECISIONS,
    REPORT,
    SUMMARY,
    SUSPECTS,
    Audit,
    chosen_pairs,
    pairs_of,
    with_pictures,
)
from truepair.audit.gallery import Example
from truepair.audit.quick import quick_audit
from truepair.audit.report import write_report
from truepair.audit.result import AuditResult
from truepair.audit.review import read_decisions
from truepair.audit.searches import witness_examples
from truepair.audit.suspects import findings, suspects_table
from truepair.beliefs.witness import hear
from truepair.errors import DataError, TruepairError
from truepair.files import replaced_when_written
from truepair.pairs.core import Pairs
from truepair.pairs.noise import Granularity

if TYPE_CHECKING:  # a quick audit does not wait for torch
    from truepair.training.run import Run

DEEP = "deep"


def audit(
    source: str | Path,
    out: str | Path | None = None,
    *,
    split: str = "train",
    noise: float | str | Path | None = None,
    noise_seed: int = 123,
    noise_protocol: Granularity = "caption",
    error_rate: float = 0.05,
    seed: int = 0,
    apply_rematch: bool = False,
    deep: bool = False,
    skip_empty: bool = False,
    features: str | Path | None = None,
    shown: bool = False,
) -> Audit:
    """Find out which pairs of a data set are mismatched, or what a run's matcher says about its training pairs.

    source: data (see docs/formats.md) or the folder of a run. out: the folder to write to; None writes nothing.
    noise: mismatches to add on purpose, as in `load_pairs`. error_rate: how many of the flagged pairs may be true
    ones. apply_rematch: also write the data with the sure proposals applied. deep: train matchers in folds first, so
    that every pair is scored by one that has not seen it; for a run, with its method, matcher and schedule.
    """
    began = time.perf_counter()
    source, out = Path(source), None if out is None else Path(out)
    if not 0 < error_rate < 1:
        raise TruepairError(f"an error rate of {error_rate} is not possible: it must lie between 0 and 1.")
    load = {
        "path": str(source.resolve()),
        "split": split,
        "noise": str(Path(noise).resolve()) if isinstance(noise, str | Path) else noise,
        "noise_seed": noise_seed,
        "noise_protocol": noise_protocol,
        "skip_empty": skip_empty,
        "features": None if features is None else str(Path(features).resolve()),
    }
    run = _run_at(source)
    if run is not None:
        if noise is not None:
            raise TruepairError("A run has its own noise: leave --noise out, or audit the data.")
        load = {"run": str(source.resolve())}
    if out is not None:
        _check_out(out)
    pairs = pairs_of(load)
    found = _verdicts(pairs, source, run, out, error_rate, seed, deep, shown)
    suspects = suspects_table(pairs, found.result)
    if found.quick is not None:
        suspects = suspects.with_columns(quick_mismatch_probability=found.quick.mismatch_probability)
    if run is not None:
        suspects = _with_ledger(suspects, run)
    summary = {
        "made_by": MADE_BY,
        "kind": found.kind,
        "source": str(source),
        "split": pairs.split,
        **findings(pairs, found.result, suspects),
        "notes": list(found.notes),
        "apply_rematch": apply_rematch,
        "seed": seed,
        "load": load,
        "data": pairs.provenance.describe(),
        "run": None if run is None else run.config,
        "versions": {"truepair": __version__, "polars": pl.__version__},
        "seconds": round(time.perf_counter() - began, 2),
    }
    finished = Audit(suspects, summary, out)
    return finished if out is None else _written(finished, pairs, out, run, found.examples)


@dataclass(frozen=True, eq=False)
class _Verdicts:
    """What was found. quick: what the data alone says, where the verdicts are a matcher's."""

    kind: str
    result: AuditResult
    examples: Sequence[Example]
    notes: tuple[str, ...] = ()
    quick: AuditResult | None = None


def _verdicts(
    pairs: Pairs,
    source: Path,
    run: "Run | None",
    out: Path | None,
    error_rate: float,
    seed: int,
    deep: bool,
    shown: bool,
) -> _Verdicts:
    heard = hear(pairs, seed)
    quick = quick_audit(pairs, error_rate=error_rate, seed=seed, heard=heard)
    if deep:
        from truepair.audit.deep import deep_audit

        if out is None:
            raise TruepairError("A deep audit trains matchers and needs a folder for them: give out (--out).")
        result, examples = deep_audit(pairs, source.resolve(), run, out / DEEP, quick, seed=seed, shown=shown)
        note = (
            "Every pair was scored by a matcher that was trained without it, its image and its image's other "
            f"texts. The data alone put the share at {quick.share:.1%}."
        )
        return _Verdicts("deep", result, examples, (note,), quick)
    if run is not None:
        from truepair.audit.run_scores import run_audit

        result, examples, own_share = run_audit(pairs, run, quick, seed=seed, shown=shown)
        note = (
            "The matcher has been trained on the very pairs it judges, and scores the wrong ones that it has learnt by "
            f"heart like true ones: its own scores put the share at {own_share:.1%}. So the share and its interval "
            "are those of the data alone; which pairs are wrong follows the matcher, which misses what it has learnt. "
            "With --deep every pair is judged by a matcher that has not seen it."
        )
        return _Verdicts("run", result, examples, (note,), quick)
    return _Verdicts("quick", quick, witness_examples(pairs, heard.witness, seed), _with_other_texts(quick))


def _with_other_texts(quick: AuditResult) -> tuple[str, ...]:
    if quick.share_alone is None:
        return ()
    return (
        "Every text was compared with its picture and with the other texts of that picture. Without those the share "
        f"comes out as {quick.share_alone:.1%}; had they misled, as where pictures were exchanged with all their "
        "texts, they would have been left out.",
    )


def _written(audit: Audit, pairs: Pairs, out: Path, run: "Run | None", examples: Sequence[Example]) -> Audit:
    """Every file whole or absent, and the summary, by which an audit is known to be finished, last."""
    (out / SUMMARY).unlink(missing_ok=True)
    suspects = audit.suspects
    write_parquet(out / SUSPECTS, with_pictures(suspects, out, stored=True))
    decisions = read_decisions(out / DECISIONS)
    clean = chosen_pairs(pairs, suspects, decisions, rematch=False)
    write_parquet(out / "clean.parquet", pairs_table(out, pairs, clean))
    if len(pairs.texts):
        write_captions(out / "clean_caps.txt", [pairs.texts[row] for row in clean.rows])
    write_data(out / "clean", pairs, clean)
    summary = audit.summary | {"kept": len(clean), "decisions_applied": len(decisions)}
    if summary["apply_rematch"]:
        repaired = chosen_pairs(pairs, suspects, decisions, rematch=True)
        write_data(out / "repaired", pairs, repaired)
        summary["repaired"] = len(repaired)
    decided = [None if name not in decisions else decisions[name].decision for name in suspects["pair_id"]]
    write_report(
        out / REPORT,
        suspects.with_columns(pl.Series("decision", decided, dtype=pl.String)),
        summary,
        runs={} if run is None else {run.folder.resolve().name: run},
        examples=examples,
    )
    with replaced_when_written(out / SUMMARY) as file:
        file.write(json.dumps(summary, indent=2, ensure_ascii=False).encode() + b"\n")
    return replace(audit, summary=summary)


def _with_ledger(suspects: pl.DataFrame, run: "Run") -> pl.DataFrame:
    """The suspects with what the run believed about each pair in the end."""
    ledger = run.ledger()
    names = [name for name in ("loss", "clean", "correspondence") if name in ledger.columns]
    return suspects.join(ledger.select("pair_id", *names), on="pair_id", how="left", maintain_order="left")


def _run_at(source: Path) -> "Run | None":
    if not (source / "config.json").exists():
        return None
    from truepair.training.run import Run

    return Run(source)


def _check_out(out: Path) -> None:
    if out.is_file():
        raise DataError(out, "this is a file.", "Name a folder to write to.")
    known = (SUSPECTS, SUMMARY, DEEP)
    if out.exists() and any(out.iterdir()) and not any((out / name).exists() for name in known):
        raise DataError(out, "this folder holds something else.", "Name a new or empty folder.")
