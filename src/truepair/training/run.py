"""A run: the folder that holds everything a later command needs."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from truepair import __version__
from truepair.errors import DataError
from truepair.files import replaced_when_written
from truepair.pairs.vocabulary import Vocabulary
from truepair.training import checkpoints


@dataclass(frozen=True)
class Run:
    """The files of a run.

    config.json: what was asked for, with data hashes and versions. metrics.jsonl: one line per epoch.
    checkpoints/last.safetensors and best.safetensors. beliefs/: the ledger's history. ledger.parquet: at the end.
    """

    folder: Path

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for, and with what data and versions."""
        path = self.folder / "config.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                self.folder, "is not a run (it has no config.json).", "Name a folder made by train."
            ) from None
        return found

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per finished epoch."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        # A line without its end is being written, or the process was killed while it was.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.folder / "ledger.parquet").exists()

    def ledger(self) -> pl.DataFrame:
        """What the run believed about every pair in the end."""
        path = self.folder / "ledger.parquet"
        if not path.exists():
            raise DataError(
                path, "does not exist: the run has not ended.", "Go on with `truepair train --resume`."
            )
        return pl.read_parquet(path)

    def write_ledger(self, frame: pl.DataFrame) -> None:
        """The last thing a run writes."""
        with replaced_when_written(self.folder / "ledger.parquet") as file:
            frame.write_parquet(file)

    def vocabulary(self) -> Vocabulary | None:
        """The words the matcher knows; None where it reads text vectors."""
        path = self.folder / "vocabulary.json"
        return Vocabulary.read(path) if path.exists() else None

    def checkpoint(self, which: str = "best") -> checkpoints.Checkpoint:
        """The checkpoint of the best epoch, or the last one."""
        return checkpoints.read(self.checkpoint_path(which))

    def checkpoint_path(self, which: str) -> Path:
        """Where a checkpoint lies."""
        return self.folder / "checkpoints" / f"{which}.safetensors"

    def beliefs_folder(self) -> Path:
        """Where the ledger's history lies."""
        return self.folder / "beliefs"

    def tensorboard_folder(self) -> Path:
        """Where TensorBoard finds its events."""
        return self.folder / "tensorboard"

    def tidy(self) -> None:
        """Remove what a process that was killed while it wrote has left behind."""
        for folder in (self.folder, self.folder / "checkpoints", self.beliefs_folder()):
            for path in folder.glob(".*"):
                path.unlink()

    def append_metrics(self, entry: Mapping[str, Any]) -> None:
        """Add one line, and see it to the disk."""
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def keep_metrics(self, lines: int) -> None:
        """Drop the lines that a stopped attempt wrote after its last checkpoint."""
        path = self.folder / "metrics.jsonl"
        if path.exists():
            kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
            write_text(path, "".join(kept))


def write_text(path: Path, text: str) -> None:
    """Write a text file so that it is either the old one or the new one."""
    with replaced_when_written(path) as file:
        file.write(text.encode())


def versions() -> dict[str, str]:
    """Versions that numbers depend on."""
    return {
        "truepair": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
