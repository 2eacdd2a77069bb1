"""The numbers of metrics.jsonl for TensorBoard, for those who watch many runs side by side."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truepair.errors import TruepairError


def check_tensorboard() -> None:
    """Complain before anything is trained that TensorBoard is not there."""
    if find_spec("tensorboard") is None:
        raise TruepairError("--tensorboard needs TensorBoard: pip install 'truepair[track]'.")


def write_events(folder: Path, entry: Mapping[str, Any]) -> None:
    """Write one line of metrics.jsonl as an event file of its own.

    An epoch that a resumed run repeats writes the same numbers for the same step again, which nobody sees.
    """
    from torch.utils.tensorboard import SummaryWriter

    epoch = entry["epoch"]
    with SummaryWriter(str(folder), filename_suffix=f".{epoch:04d}") as writer:
        for name, value in scalars({key: part for key, part in entry.items() if key != "epoch"}):
            writer.add_scalar(name, value, epoch)


def scalars(part: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of nested values under its path, such as validation/networks/0/rsum; texts and gaps left out."""
    if isinstance(part, Mapping):
        children = list(part.items())
    elif isinstance(part, list):
        children = list(enumerate(part))
    elif isinstance(part, int | float):
        yield name, float(part)
        return
    else:
        return
    for key, child in children:
        yield from scalars(child, f"{name}/{key}" if name else str(key))
