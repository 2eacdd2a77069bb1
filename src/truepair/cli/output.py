"""What a verb has to say: JSON for machines, a table for people."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

_WIDTH_IN_FILES = 200  # a pipe has no width of its own, and nothing should be cut there


def emit(summary: Any, *, as_json: bool, shown: RenderableType | None = None) -> None:
    """Print a summary of plain values.

    shown: what people get to see instead; by default a table, of two columns for a mapping and of one row an
    entry for a sequence of mappings.
    """
    if as_json:
        json.dump(_plain(summary), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_IN_FILES)
    console.print(_rendered(summary) if shown is None else shown)


def table(columns: Sequence[str]) -> Table:
    """An empty table in the style of all verbs; numbers stand to the right of the first column."""
    result = Table(box=None, padding=(0, 2), header_style="bold")
    for position, name in enumerate(columns):
        result.add_column(name, justify="right" if position else "left", style=None if position else "cyan")
    return result


def words(value: Any) -> str:
    """A value as people write it."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(words(entry) for entry in value)
    return str(value)


def _plain(value: Any) -> Any:
    """What JSON can say: numbers that are no numbers become null, paths text, numpy's values Python's."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # numpy, without importing it
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _rendered(summary: Any) -> RenderableType:
    if isinstance(summary, Mapping):
        result = table(("", ""))
        for name, value in summary.items():
            result.add_row(name.replace("_", " "), words(value))
        return result
    names = list(dict.fromkeys(name for entry in summary for name in entry))
    result = table([name.replace("_", " ") for name in names])
    for entry in summary:
        result.add_row(*(words(entry.get(name, "")) for name in names))
    return result
