"""truepair evaluate."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from truepair.cli.output import emit
from truepair.cli.recalls import recall_table, shares
from truepair.errors import TruepairError
from truepair.evaluation.protocols import PROTOCOLS


def evaluate(
    run: Annotated[Path, tyro.conf.Positional],
    split: str = "test",
    protocol: Literal[tuple(PROTOCOLS)] = "f30k",  # type: ignore[valid-type]
    checkpoint: Literal["best", "last"] = "best",
    data: Path | None = None,
    memory_limit: int = 1024,
    two_stage: bool = False,
    loss: float = 0.3,
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
        two_stage: score only shortlists that cheap vectors make, so long that little of rSum is lost.
        loss: how much of rSum --two-stage may lose, measured on the dev split.
        json: print JSON.
    """
    from truepair.evaluation.runs import evaluate_run

    if not loss >= 0:
        raise TruepairError(f"--loss is {loss}, but what may be lost of rSum cannot be less than nothing.")
    result = evaluate_run(
        run,
        split,
        protocol,
        checkpoint=checkpoint,
        data=data,
        memory_limit=memory_limit * 2**20,
        two_stage=loss if two_stage else None,
    )
    emit(result, as_json=json, shown=None if json else recall_table(result, _caption(result)))


def _caption(result: dict[str, Any]) -> str:
    caption = f"{result['split']}, {result['protocol']}, epoch {result['epoch']}"
    if result["mode"] == "two-stage":
        stages = result["two_stage"]
        measured = stages["calibration"]
        caption += (
            f"; two-stage: {stages['images_per_text']} images a text, {stages['texts_per_image']} texts an image,"
            f" {stages['scored']:.1%} of the pairs scored by {stages['first_stage']}; on the dev split rSum"
            f" lost {measured['lost']:.2f} and gained {measured['gained']:.2f} (bound {measured['bound']:g})"
        )
    found = result["identification"]
    return (
        caption if found is None else f"{caption}; wrong training pairs by {found['source']}: {shares(found)}"
    )
