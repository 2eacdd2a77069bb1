"""truepair audit: which pairs are wrong, how many, and what fits them better."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Group, RenderableType
from rich.text import Text

from truepair.cli.inspect import ratio_or_file
from truepair.cli.output import emit, table
from truepair.pairs.noise import Granularity


def audit(
    source: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path,
    split: str = "train",
    noise: str | None = None,
    noise_seed: int = 123,
    noise_protocol: Granularity = "caption",
    error_rate: float = 0.05,
    seed: int = 0,
    apply_rematch: bool = False,
    deep: bool = False,
    skip_empty: bool = False,
    features: Path | None = None,
    json: bool = False,
) -> None:
    """Find mismatched pairs: a table of suspects, a report, and the data without them.

    On data alone this takes seconds and trains nothing. On a run it asks the trained matcher about its pairs.

    Args:
        source: A data set, or the folder of a run.
        out: The folder to write to; an earlier audit there is replaced, decisions of a review are kept and applied.
        split: Which split of the data to audit.
        noise: A noise index file, or a ratio to mismatch pairs at random first, to see how well they are found.
        noise_seed: Seed of a ratio.
        noise_protocol: What a ratio moves, single captions or images with all their captions.
        error_rate: The largest probability of being a true pair with which a pair is still flagged.
        seed: Seed of the folds, the re-pairings and the interval.
        apply_rematch: Also write the data set in which texts with a sure proposal have the proposed image.
        deep: Train a matcher in folds, so that every pair is scored by one that has not seen it. Takes a while;
            what is stopped goes on where it was when the same line is given again.
        skip_empty: Set pairs with an empty caption aside instead of stopping at them.
        features: The feature file of a table, if its place does not tell.
        json: Print the summary as JSON.
    """
    from truepair.audit.auditing import audit as audited
    from truepair.audit.error_rates import advice

    found = audited(
        source,
        out,
        split=split,
        noise=ratio_or_file(noise),
        noise_seed=noise_seed,
        noise_protocol=noise_protocol,
        error_rate=error_rate,
        seed=seed,
        apply_rematch=apply_rematch,
        deep=deep,
        skip_empty=skip_empty,
        features=features,
        shown=not json,
    )
    summary = {name: value for name, value in found.summary.items() if name != "scores"}
    hint = advice(found.suspects, summary["diagnostic"]["kind"], summary["estimated_share"], error_rate)
    emit({"out": str(out), **summary}, as_json=json, shown=None if json else _shown(out, found.summary, hint))


def _shown(out: Path, summary: dict[str, Any], hint: str | None) -> RenderableType:
    low, high = summary["interval"]
    facts = table(["", ""])
    facts.show_header = False
    facts.add_row("pairs", f"{summary['pairs']:,}")
    facts.add_row(
        "estimated mismatched", f"{summary['estimated_share']:.1%} ({low:.1%} to {high:.1%})", style="bold"
    )
    truth = summary["truth"]
    if truth is not None:
        facts.add_row("truly mismatched", f"{truth['share']:.1%}")
    facts.add_row(f"flagged at {summary['error_rate']:.0%} error", f"{summary['flagged']:,}")
    if truth is not None and truth["precision"] is not None:
        facts.add_row(
            "of these truly wrong", f"{truth['precision']:.1%} ({truth['recall'] or 0:.1%} of all wrong ones)"
        )
    facts.add_row("kept as clean", f"{summary['kept']:,}")
    facts.add_row("sure proposals to rematch", f"{summary['rematch_proposals']:,}")
    parts: list[RenderableType] = [facts, Text(), Text(summary["diagnostic"]["says"])]
    parts += [Text(note) for note in summary["notes"]]
    if hint is not None:
        parts += [Text(), Text(hint)]
    parts += [
        Text(),
        Text(f"{out / 'report.html'}: open it in a browser."),
        Text(f"{out / 'suspects.parquet'}: every pair with its verdict."),
        Text(f"{out / 'clean'}: the data without the flagged pairs, for every other verb."),
    ]
    if "repaired" in summary:
        parts.append(Text(f"{out / 'repaired'}: the same with sure proposals applied."))
    parts.append(Text(f"Next: truepair review {out}" + ("" if summary["flagged"] else " --unflagged")))
    return Group(*parts)
