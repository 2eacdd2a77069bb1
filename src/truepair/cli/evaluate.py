"""truepair evaluate."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from truepair.cli.output import emit, table
from truepair.evaluation.protocols import PROTOCOLS


def evaluate(
    run: Annotated[Path, tyro.conf.Positional],
    split: str = "test",
    protocol: Literal[tuple(PROTOCOLS)] = "f30k",  # type: ignore[valid-type]
    checkpoint: Literal["best", "last"] = "best",
    data: Path | None = None,
    memory_limit: int = 1024,
    json: bool = False,
) -> None:
    """Recalls of a run's networks and of their ensemble, and how well the run told wrong pairs apart.

    Args:
        run: the run's folder.
        split: which split to measure on.
        protocol: f30k searches the whole split; coco-1k is the mean of five folds; pairs is one to one.
        checkpoint: the epoch that was best on the validation split, or the last one.
        data: another data set of the same kind of features; default: the one the run was trained on.
        memory_limit: MiB that one block of similarities may take.
        json: print JSON.
    """
    from truepair.evaluation.runs import evaluate_run

    result = evaluate_run(
        run, split, protocol, checkpoint=checkpoint, data=data, memory_limit=memory_limit * 2**20
    )
    emit(result, as_json=json, shown=None if json else _recall_table(result))


def _recall_table(result: dict[str, Any]) -> Any:
    shown = table(
        ["", *(f"{side} {k}" for side in ("i2t", "t2i") for k in ("R@1", "R@5", "R@10", "medr")), "rSum"]
    )
    rows = [(f"network {number + 1}", network) for number, network in enumerate(result["networks"])]
    if len(rows) > 1:
        rows.append(("ensemble", result["ensemble"]))
    for name, measured in rows:
        sides = (measured[side] for side in ("i2t", "t2i"))
        numbers = [f"{side[k]:.1f}" for side in sides for k in ("r1", "r5", "r10", "medr")]
        shown.add_row(name, *numbers, f"{measured['rsum']:.1f}")
    found = result["identification"]
    shown.caption = f"{result['split']}, {result['protocol']}, epoch {result['epoch']}"
    if found is not None:
        shares = (
            f"{name} {found[name]:.3f}" for name in ("precision", "recall", "auc") if found[name] is not None
        )
        shown.caption += f"; wrong training pairs by {found['source']}: {', '.join(shares)}"
    return shown
