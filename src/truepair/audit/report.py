"""The report: one HTML file that needs nothing else, neither network nor scripts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import polars as pl

from truepair.audit.charts import percent
from truepair.audit.error_rates import at_rates
from truepair.audit.gallery import Example, card, cards, others_first, strongest_first
from truepair.audit.sections import identification_charts, loss_chart, score_charts, training_charts
from truepair.audit.thumbnails import Thumbnails
from truepair.files import replaced_when_written

if TYPE_CHECKING:  # a report without runs does not wait for torch
    from truepair.training.run import Run


@dataclass(frozen=True)
class Limits:
    """What keeps the page small. side: of a thumbnail in pixels. pictures: how many of them at most."""

    suspects: int = 60
    opened: int = 12
    """Suspects shown at once; the others unfold."""
    pictures: int = 300
    side: int = 160


@dataclass(frozen=True)
class Table:
    """A table of its own in the report. rows: text for every cell, the first is the row's name."""

    title: str
    says: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_report(
    path: str | Path,
    suspects: pl.DataFrame,
    summary: Mapping[str, Any],
    *,
    runs: "Mapping[str, Run] | None" = None,
    examples: Sequence[Example] = (),
    tables: Sequence[Table] = (),
    title: str = "Audit of image-text pairs",
    limits: Limits | None = None,
) -> Path:
    """Write report.html.

    suspects, summary: what `suspects.parquet` and `summary.json` hold (docs/audit.md); picture paths are opened as
    they stand. runs: training runs by the name they are to have, for losses and training curves. examples:
    searches both ways. tables: further tables, shown at the top.
    """
    path, limits = Path(path), limits or Limits()
    thumbnails = Thumbnails(limits.side, limits.pictures)
    runs = runs or {}
    losses = [loss_chart(run, f": {name}" if len(runs) > 1 else "") for name, run in runs.items()]
    share = float(summary["estimated_share"])
    flagged = cards(strongest_first(suspects), limits.suspects, thumbnails)
    # Where hardly anything is certain enough to be flagged, there is still something to look at.
    room = max(0, limits.opened - len(flagged))
    text = _template("report.html").render(
        title=title,
        summary=summary,
        tables=tables,
        scores=score_charts(summary, suspects),
        rates=at_rates(suspects, summary["diagnostic"]["kind"]),
        cards=flagged,
        others=cards(others_first(suspects, share), room, thumbnails),
        opened=limits.opened,
        examples=examples,
        thumbnail=thumbnails,
        identification=identification_charts(suspects),
        training=training_charts(runs) + [chart for chart in losses if chart is not None],
        configs={name: _pretty(run.config) for name, run in runs.items()},
        settings=_pretty({key: value for key, value in summary.items() if key != "scores"}),
    )
    with replaced_when_written(path) as file:
        file.write(text.encode("utf-8", "replace"))
    return path


def write_pair_page(
    path: Path, row: dict[str, Any], number: int, *, side: int = 480, seconds: int = 1
) -> None:
    """Write a page with one pair that reads itself again every so many seconds: it follows a review."""
    shown = card(row, Thumbnails(side))
    text = _template("pair.html").render(
        title=f"Review of {row['pair_id']}", card=shown, number=number, seconds=seconds
    )
    with replaced_when_written(path) as file:
        file.write(text.encode("utf-8", "replace"))


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("truepair.audit"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["percent"] = percent
    # Nothing is certain, whatever rounding makes of it.
    environment.filters["likelihood"] = lambda p: "over " + percent(0.999) if p > 0.999 else percent(p)
    environment.filters["confidence"] = lambda p: "under " + percent(0.01, 0) if p < 0.01 else percent(p, 0)
    return environment.get_template(name)


def _pretty(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, default=str)
