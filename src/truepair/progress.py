"""Progress of long work, for people: a bar with an estimate on a terminal, silence elsewhere."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def track(items: Iterable[T], label: str, total: int | None = None, *, shown: bool = True) -> Iterator[T]:
    """Yield the items while a bar on stderr shows how many are done and how long the rest will take."""
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield from progress.track(items, total=total, description=label)
