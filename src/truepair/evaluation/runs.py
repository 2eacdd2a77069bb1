"""Results of a run: its networks on any split, and what it believed about its training pairs."""

from pathlib import Path
from typing import Any, Literal

from truepair.evaluation.networks import evaluate_networks
from truepair.evaluation.similarity import MEMORY_LIMIT
from truepair.pairs.batch import BatchReader
from truepair.pairs.readers import load_pairs
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
) -> dict[str, Any]:
    """Recalls by network and of the ensemble, and identification of the wrong pairs where the truth is known.

    The result carries what its numbers depend on: the run's seed and config, the data's hashes, versions.
    """
    run = run if isinstance(run, Run) else Run(Path(run))
    config = run.config["config"]
    pairs = load_pairs(data or config["data"], split)
    networks, epoch = load_networks(run, checkpoint)
    return {
        **evaluate_networks(networks, BatchReader(pairs, run.vocabulary()), protocol, memory_limit),
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
