"""What two-stage evaluation costs a trained SGR or SAF in recall, and what it saves.

    cd benchmarks && python -m speed.trained DATA [--matcher sgr] [--first-images N] [--run RUN]

Trains with the triplet loss at the reduced sizes (in small batches, which cost least on a processor), or reads a run
that was trained so, and compares both modes of `truepair evaluate` on the test split. Seconds are processor seconds:
the machine may be busy.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from speed.items import EMBEDDING, SIMILARITY
from truepair.evaluation.calibration import BOUND
from truepair.evaluation.runs import evaluate_run
from truepair.methods.plain import Plain
from truepair.training.fit import fit
from truepair.training.run import Run
from truepair.training.schedule import Schedule


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="speed.trained", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--matcher", choices=["sgr", "saf"], default="sgr")
    parser.add_argument("--first-images", type=int)
    parser.add_argument(
        "--epochs", type=int, default=4, help="with the hardest negatives, after two of warm-up"
    )
    parser.add_argument("--bound", type=float, default=BOUND)
    parser.add_argument("--run", type=Path, help="a run to measure instead of training one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options.run) if options.run else trained(options, Path(folder) / "run")
        print(json.dumps(compared(run, options.data, options.bound), indent=1))


def trained(options: argparse.Namespace, folder: Path) -> Run:
    sizes = {"embedding": EMBEDDING, "similarity": SIMILARITY, "word_width": 128}
    schedule = Schedule(
        warmup=2,
        pieces=(options.epochs,),
        decay_after=options.epochs - 1,
        learning_rate=5e-4,
        batch_size=32,
    )
    return fit(
        options.data,
        Plain(objective="triplet"),
        options.matcher,
        out=folder,
        schedule=schedule,
        matcher_options=sizes,
        first_images=options.first_images,
        seed=1,
    )


def compared(run: Run, data: Path, bound: float) -> dict[str, Any]:
    """rSum and processor seconds of both modes on the test split, encoding included; calibration told apart."""
    evaluate_run(run, "test", data=data, two_stage=bound)  # calibrates, and keeps that
    began = time.process_time()
    exact = evaluate_run(run, "test", data=data)
    between = time.process_time()
    short = evaluate_run(run, "test", data=data, two_stage=bound)
    ended = time.process_time()
    return {
        "epoch": exact["epoch"],
        "rsum_exact": exact["ensemble"]["rsum"],
        "rsum_two_stage": short["ensemble"]["rsum"],
        "seconds_exact": between - began,
        "seconds_two_stage": ended - between,
        **short["two_stage"],
    }


if __name__ == "__main__":
    main()
