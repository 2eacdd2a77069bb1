"""Checkpoints: one safetensors file that holds everything a run needs to go on, written atomically."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from truepair.beliefs.ledger import Ledger
from truepair.errors import DataError
from truepair.files import replaced_when_written


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and plain facts (numbers, strings, lists of them)."""

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under a prefix, without it."""
        return {name[len(prefix) :]: t for name, t in self.tensors.items() if name.startswith(prefix)}


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write so that a crash at any moment leaves the old file or the new one, never half of one."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    with replaced_when_written(path) as file:
        file.write(save(tensors, metadata={"facts": json.dumps(checkpoint.facts)}))


def read(path: Path) -> Checkpoint:
    """Read a checkpoint. The format cannot hold code, so a file from anywhere is safe to open."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            return Checkpoint({name: file.get_tensor(name) for name in file.keys()}, facts)  # noqa: SIM118
    except FileNotFoundError:
        raise DataError(path, "there is no such checkpoint.", "Train first, or name another run.") from None
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise DataError(
            path, f"is not a checkpoint of this program ({error}).", "Train again, or restore it."
        ) from None


def optimiser_tensors(optimiser: Optimizer, prefix: str) -> dict[str, Tensor]:
    """An optimiser's moments and step counts by name. Its settings come from the schedule when a run goes on."""
    state = optimiser.state_dict()["state"]
    return {
        f"{prefix}{parameter}.{name}": torch.as_tensor(value)
        for parameter, values in state.items()
        for name, value in values.items()
    }


def restore_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser over the same parameters its moments and step counts back."""
    whole = optimiser.state_dict()
    whole["state"] = {}
    for key, value in tensors.items():
        parameter, name = key.split(".")
        whole["state"].setdefault(int(parameter), {})[name] = value
    optimiser.load_state_dict(whole)


def networks_tensors(networks: list[nn.Module]) -> dict[str, Tensor]:
    """All networks' parameters and buffers, each network under its number."""
    return {
        f"network{number}.{name}": tensor
        for number, network in enumerate(networks)
        for name, tensor in network.state_dict().items()
    }


def restore_networks(networks: list[nn.Module], checkpoint: Checkpoint) -> None:
    """Load all networks' parameters and buffers."""
    for number, network in enumerate(networks):
        network.load_state_dict(checkpoint.part(f"network{number}."))


def ledger_tensors(ledger: Ledger) -> dict[str, Tensor]:
    """The present beliefs; the history lies in files of its own that are written once."""
    return {f"ledger.{name}": column for name, column in ledger.columns().items()}
