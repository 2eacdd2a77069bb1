"""Results of a run: its networks on any split, and what it believed about its training pairs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from truepair.evaluation.calibration import Calibration
from truepair.evaluation.first_stage import FirstStage
from truepair.evaluation.networks import (
    Shortlists,
    calibrate_networks,
    evaluate_networks,
    evaluate_two_stage,
)
from truepair.evaluation.similarity import MEMORY_LIMIT
from truepair.evaluation.two_stage import Size
from truepair.matchers.base import Matcher
from truepair.pairs.batch import BatchReader
from truepair.pairs.readers import load_pairs
from truepair.training import checkpoints
from truepair.training.fit import load_networks
from truepair.training.run import Run, versions


def evaluate_run(
    run: Run | str | Path,
    split: str = "test",
    protocol: str = "f30k",
    *,
    checkpoint: Literal["best", "last"] = "best",
    data: str | Path | None = None,
    memory_limit: int = MEMORY_LIMIT,
    two_stage: float | None = None,
) -> dict[str, Any]:
    """Recalls by network and of the ensemble, and identification of the wrong pairs where the truth is known.

    two_stage: score shortlists only, so long that no more than this of rSum is lost; None scores
    every pair.
    The result carries what its numbers depend on: the run's seed and config, the data's hashes, versions.
    """
    run = run if isinstance(run, Run) else Run(Path(run))
    config = run.config["config"]
    pairs = load_pairs(data or config["data"], split)
    networks, epoch = load_networks(run, checkpoint)
    reader = BatchReader(pairs, run.vocabulary())
    if two_stage is None:
        measured = evaluate_networks(networks, reader, protocol, memory_limit)
    else:
        validation = BatchReader(load_pairs(data or config["data"], "dev"), run.vocabulary())
        shortlists = _shortlists(run, networks, epoch, validation, two_stage, memory_limit)
        measured = evaluate_two_stage(networks, reader, shortlists, protocol, memory_limit)
    return {
        **measured,
        "mode": "exact" if two_stage is None else "two-stage",
        "identification": identification_of(run),
        "split": split,
        "protocol": protocol,
        "checkpoint": checkpoint,
        "epoch": epoch,
        "run": str(run.folder),
        "seed": config["seed"],
        "config": config,
        "training_data": run.config["data"],
        "data": pairs.provenance.describe(),
        "versions": versions(),
    }


def _shortlists(
    run: Run,
    networks: Sequence[Matcher],
    epoch: int,
    validation: BatchReader,
    bound: float,
    memory_limit: int,
) -> Shortlists:
    """Measured once for an epoch, a bound and a dev split, since it needs all scores there; then kept with the run."""
    path = run.folder / "two_stage.safetensors"
    made_for = {"epoch": epoch, "bound": bound, "data": validation.pairs.provenance.describe()}
    if path.exists():
        kept = checkpoints.read(path)
        if kept.facts["made_for"] == json.loads(json.dumps(made_for)):
            values = kept.facts["calibration"]
            first = (
                FirstStage(**{name: x.numpy() for name, x in kept.tensors.items()}) if kept.tensors else None
            )
            return Shortlists(Calibration(**{**values, "size": Size(*values["size"])}), first)
    found = calibrate_networks(networks, validation, bound, memory_limit)
    tensors = {} if found.first_stage is None else vars(found.first_stage)
    checkpoints.write(
        path,
        checkpoints.Checkpoint(
            {name: torch.from_numpy(x) for name, x in tensors.items()},
            {"made_for": made_for, "calibration": asdict(found.calibration)},
        ),
    )
    return found


def identification_of(run: Run) -> dict[str, Any] | None:
    """How the run's last beliefs agree with the truth: the division's figures, or those of the soft labels.

    precision and recall are those of the mismatched pairs. None where the truth is not known.
    """
    beliefs = run.metrics[-1]["beliefs"] if run.metrics else {}
    source = next((name for name in ("division", "labels") if f"by_{name}" in beliefs), None)
    if source is None:
        return None
    chosen = beliefs[f"by_{source}"]
    return {
        "source": source,
        **chosen["mismatched"],
        "auc": chosen["auc"],
        **{name: value for name, value in beliefs.items() if name.startswith("by_")},
    }
