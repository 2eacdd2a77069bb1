"""What a run tells while it works: a bar with an estimate, a line per epoch, the state of its beliefs."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from truepair.beliefs.ledger import Ledger, Partition
from truepair.evaluation.identification import auc, identification


class Telling:
    """Talks on stderr, and only where somebody watches. total: network-epochs of the whole run, done: so far."""

    def __init__(self, total: float, done: float = 0.0, *, quiet: bool = False) -> None:
        console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=total, completed=int(done))

    def __enter__(self) -> "Telling":
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def says(self, what: str) -> None:
        """What is being done now."""
        self._progress.update(self._task, description=what)

    def advances(self, network_epochs: float) -> None:
        """So much of an epoch of one network is done."""
        self._progress.advance(self._task, network_epochs)

    def epoch_ended(self, entry: dict[str, Any]) -> None:
        """One line about a finished epoch."""
        if self._quiet:
            return
        losses = " / ".join(f"{loss:.4f}" for loss in entry["loss"])
        line = f"epoch {entry['epoch'] + 1:3d}  {entry['stage']:8s} loss {losses}"
        if "validation" in entry:
            measured = entry["validation"]
            line += "  rSum " + " / ".join(f"{network['rsum']:.1f}" for network in measured["networks"])
            if len(measured["networks"]) > 1:
                line += f", ensemble {measured['ensemble']['rsum']:.1f}"
        if "clean_share" in entry["beliefs"]:
            line += f"  clean {entry['beliefs']['clean_share']:.1%}"
        spent = sum(entry["time"][f"{part}_seconds"] for part in ("sweep", "train", "validation"))
        # One line per epoch also in a file, which has no width.
        self._progress.console.print(f"{line}  {spent:.1f} s{'  *' if entry['best'] else ''}", soft_wrap=True)


def describe_beliefs(ledger: Ledger, mismatched: NDArray[np.bool_] | None, decoys: Tensor) -> dict[str, Any]:
    """How much of the data is believed, and where the truth is known, how well wrong pairs are told apart.

    decoys: n bools, pairs that are not the data's own and do not count.
    """
    own = ~decoys
    if mismatched is not None:
        mismatched = mismatched[own.numpy()]
    label = ledger.correspondence[:, own].mean(0).numpy()
    described: dict[str, Any] = {"mean_correspondence": float(label.mean())}
    partition = ledger.partition[:, own]
    divided = bool((partition != int(Partition.UNDIVIDED)).any())
    if divided:
        noisy = (partition == int(Partition.NOISY)).float().mean(0).numpy()
        described["clean_share"] = float(1 - noisy.mean())
    if mismatched is not None:
        described["by_labels"] = asdict(identification(1 - label, mismatched))
        if divided:
            clean = ledger.clean[:, own].mean(0).numpy()
            described["by_division"] = asdict(identification(noisy >= 0.5, mismatched))
            described["by_division"]["auc"] = auc(1 - clean, mismatched)
    return described
