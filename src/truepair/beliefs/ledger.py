"""The ledger: what is believed about every pair, one row per pair and network, with its history."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from truepair.errors import DataError
from truepair.files import replaced_when_written


class Partition(IntEnum):
    """Where a method put a pair."""

    UNDIVIDED = 0
    CLEAN = 1
    NOISY = 2
    LOCAL = 3  # ReCon: associated in parts only


@dataclass
class Ledger:
    """Columns of belief, each networks x pairs.

    loss: the per-pair loss of the last sweep or step. clean: probability that the pair is a true one.
    correspondence: the soft label a method trains with. partition: where it put the pair.
    prior: probability of being clean before any training, pairs; all ones unless a prior was asked for.
    """

    loss: Tensor
    clean: Tensor
    correspondence: Tensor
    partition: Tensor
    prior: Tensor
    past: list[dict[str, Tensor]] = field(default_factory=list)
    notes: dict[str, Tensor] = field(default_factory=dict)
    """What a method remembers besides beliefs about single pairs, such as recent anchors; saved with them."""

    COLUMNS = ("loss", "clean", "correspondence", "partition")

    @classmethod
    def blank(cls, networks: int, pairs: int, prior: Tensor | None = None) -> "Ledger":
        """A ledger that believes every pair, or believes the prior (pairs) where one is given."""
        belief = torch.ones(pairs) if prior is None else prior.float()
        return cls(
            loss=torch.zeros(networks, pairs),
            clean=belief.repeat(networks, 1),
            correspondence=belief.repeat(networks, 1),
            partition=torch.zeros(networks, pairs, dtype=torch.uint8),
            prior=belief.clone(),
        )

    def close_epoch(self) -> None:
        """Remember this epoch's beliefs, compactly: two bytes for a loss, one for a probability or a partition."""
        self.past.append(
            {
                "loss": self.loss.half(),
                "clean": (self.clean.clamp(0, 1) * 255).round().byte(),
                "correspondence": (self.correspondence.clamp(0, 1) * 255).round().byte(),
                "partition": self.partition.clone(),
            }
        )

    def columns(self) -> dict[str, Tensor]:
        """The present beliefs by name, for a checkpoint."""
        beliefs = {name: getattr(self, name) for name in (*self.COLUMNS, "prior")}
        return beliefs | {f"notes.{name}": note for name, note in self.notes.items()}

    def restore(self, columns: dict[str, Tensor]) -> None:
        """Take over the beliefs of a checkpoint."""
        for name in (*self.COLUMNS, "prior"):
            getattr(self, name).copy_(columns[name])
        self.notes = {
            name.removeprefix("notes."): x for name, x in columns.items() if name.startswith("notes.")
        }

    def save_epoch(self, folder: Path, epoch: int) -> None:
        """Write one closed epoch (counted from 0) of the history; earlier ones are never written again."""
        with replaced_when_written(folder / f"{epoch:04d}.safetensors") as file:
            file.write(save({name: column.contiguous() for name, column in self.past[epoch].items()}))

    def load_past(self, folder: Path, epochs: int) -> None:
        """Read the history of the first epochs back; what lies beyond belongs to a stopped attempt."""
        self.past = [_read_epoch(folder / f"{epoch:04d}.safetensors") for epoch in range(epochs)]

    def frame(
        self, ids: Sequence[str], texts: Sequence[str], mismatched: Sequence[bool] | None
    ) -> pl.DataFrame:
        """One row per pair: id, text, mean beliefs over the networks, each network's own, and the history."""
        columns: dict[str, object] = {"pair_id": list(ids)}
        if len(texts):
            columns["text"] = list(texts)
        if mismatched is not None:
            columns["truly_mismatched"] = list(mismatched)
        for name in ("loss", "clean", "correspondence"):
            column: Tensor = getattr(self, name)
            columns[name] = column.mean(0).numpy()
            if len(column) > 1:
                columns |= {f"{name}_{network}": column[network].numpy() for network in range(len(column))}
        for network in range(len(self.partition)):
            suffix = f"_{network}" if len(self.partition) > 1 else ""
            columns[f"partition{suffix}"] = [
                Partition(p).name.lower() for p in self.partition[network].tolist()
            ]
        if self.past:
            for name in ("loss", "clean", "correspondence"):
                # pairs x epochs, the mean over the networks.
                history = torch.stack([epoch[name].float().mean(0) for epoch in self.past], dim=1)
                scale = 1.0 if name == "loss" else 1 / 255
                columns[f"{name}_history"] = (history * scale).numpy()
        return pl.DataFrame(columns)


def without_decoys(frame: pl.DataFrame, decoys: NDArray[np.bool_]) -> pl.DataFrame:
    """A ledger's frame with a column that names the decoys, whose beliefs are not about the given pair: left empty."""
    known = ("pair_id", "text", "truly_mismatched")
    marked = frame.with_columns(decoy=pl.Series(decoys))
    beliefs = pl.all().exclude(*known, "decoy")
    return marked.with_columns(pl.when(~pl.col("decoy")).then(beliefs))


def _read_epoch(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise DataError(
            path, f"an epoch of the ledger's history cannot be read ({error}).", "Restore it, or train again."
        ) from None
