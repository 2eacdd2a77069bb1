"""Official .pth.tar checkpoints, read without executing anything that lies in them."""

import argparse
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truepair.errors import DataError

# The order in which every release of this family lists the parts of a network.
PARTS = ("img_enc", "txt_enc", "sim_enc")

# What published checkpoints hold besides tensors: the options, and numpy numbers such as the best recall sum.
# Rebuilding these runs no code of the file. numpy has moved its core; old files use the old address.
_SCALAR = import_module("numpy._core.multiarray").scalar
ALLOWED: list[Any] = [
    argparse.Namespace,
    np.dtype,
    *{type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)},
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
]


@dataclass(frozen=True, eq=False)
class PublishedCheckpoint:
    """The content of an official checkpoint.

    networks: one flat state dict per network, with the prefixes img_enc., txt_enc. and sim_enc.; two of them
    where the method trains a pair. options: the command line it was trained with. epoch, best_rsum: None if not
    recorded.
    """

    source: str
    networks: list[dict[str, Tensor]]
    options: dict[str, Any] = field(default_factory=dict)
    epoch: int | None = None
    best_rsum: float | None = None


def load_published_checkpoint(path: str | Path) -> PublishedCheckpoint:
    """Read an official checkpoint. SGRAF, VSE-infinity and CRCL keep one network, NCR and its descendants two.

    Only tensors, plain values, options and numpy numbers are rebuilt. A file that asks for anything else is
    refused, and nothing in it is run.
    """
    path = Path(path)
    content = _read(path)
    if not isinstance(content, Mapping):
        raise DataError(path, f"it holds a {type(content).__name__}, not a checkpoint.", _EXPECTED)
    names = [name for name in ("model", "model_A", "model_B") if name in content]
    if not names:
        found = ", ".join(map(str, list(content)[:8])) or "nothing"
        raise DataError(path, f"it has no entry 'model' or 'model_A' (it has: {found}).", _EXPECTED)
    epoch, rsum = _number(content.get("epoch")), _number(content.get("best_rsum"))
    return PublishedCheckpoint(
        source=str(path),
        networks=[_flatten(path, name, content[name]) for name in names],
        options=_options(path, content.get("opt")),
        epoch=None if epoch is None else int(epoch),
        best_rsum=rsum,
    )


_EXPECTED = (
    "Expected the .pth.tar of a published image-text matcher: {'model': [img_enc, txt_enc, sim_enc], ...}."
)

# What torch raises for files that are cut off, empty, or of another format.
_READ_ERRORS = (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError, TypeError)


def _read(path: Path) -> Any:
    if not path.is_file():
        raise DataError(path, "there is no such file.", "Give the path of a .pth.tar file.")
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(ALLOWED):
            # torch warns of pickles of other tools before it refuses them.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Unsupported global" in str(error) or "GLOBAL" in str(error):
            wanted = _asked_for(str(error))
            raise DataError(
                path,
                f"it asks to run {wanted}, which a checkpoint has no need of; nothing was run.",
                "Do not load this file with other tools unless you trust its origin.",
            ) from error
        raise DataError(path, "it is damaged or not a PyTorch file.", "Download it again.") from error
    except _READ_ERRORS as error:
        raise DataError(path, "it is damaged or not a PyTorch file.", "Download it again.") from error


def _number(value: Any) -> float | None:
    """What is recorded beside the weights, if it is a number: nothing depends on it."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float | np.number) and np.isfinite(value) else None


def _options(path: Path, recorded: Any) -> dict[str, Any]:
    if recorded is None:
        return {}
    if isinstance(recorded, argparse.Namespace):
        return dict(vars(recorded))
    if not isinstance(recorded, Mapping):
        raise DataError(
            path, f"'opt' is a {type(recorded).__name__}, not the options of a training.", _EXPECTED
        )
    return {str(name): value for name, value in recorded.items()}


def _asked_for(message: str) -> str:
    """The name of the forbidden object in torch's message."""
    for mark in ("Unsupported global: GLOBAL ", "GLOBAL "):
        if mark in message:
            return message.split(mark, 1)[1].split()[0].rstrip(".,")
    return "code"


def _flatten(path: Path, name: str, parts: Any) -> dict[str, Tensor]:
    """[{fc.weight: ...}, {embed.weight: ...}] becomes {img_enc.fc.weight: ..., txt_enc.embed.weight: ...}."""
    if isinstance(parts, Mapping):  # already flat
        parts, prefixes = [parts], [""]
    else:
        prefixes = [f"{part}." for part in PARTS]
    if not isinstance(parts, Sequence) or not 1 <= len(parts) <= len(PARTS):
        raise DataError(path, f"'{name}' is not a list of two or three state dicts.", _EXPECTED)
    flat: dict[str, Tensor] = {}
    for prefix, part in zip(prefixes, parts, strict=False):
        if not isinstance(part, Mapping) or not all(
            isinstance(key, str) and isinstance(value, Tensor) for key, value in part.items()
        ):
            raise DataError(path, f"'{name}' holds something that is not a state dict of tensors.", _EXPECTED)
        flat.update({f"{prefix}{key.removeprefix('module.')}": value for key, value in part.items()})
    return flat
