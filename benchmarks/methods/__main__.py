"""Trains every method on one data set at several noise ratios and writes the tables of docs/results.md.

    make results DATA=...                                  # whatever is missing, then the tables
    cd benchmarks && python -m methods DATA [--part main division ...] [--noise 0.4] [--seed 123] [--jobs 2]
    cd benchmarks && python -m methods --tables ../docs/results.md

A line of results/methods.jsonl per finished run; those are not repeated, runs that were stopped go on. Each run
uses one thread. Sizes are reduced (embedding 256, similarity 64).
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from methods.chart import draw
from methods.experiments import PARTS, Experiment
from methods.tables import fill_page

RESULTS = Path(__file__).parents[1] / "results" / "methods.jsonl"
SIZES = {
    "vse_infty": ("--vse_infty.embedding", "256", "--vse_infty.word-width", "128"),
    "sgr": ("--sgr.embedding", "256", "--sgr.word-width", "128", "--sgr.similarity", "64"),
    "saf": ("--saf.embedding", "256", "--saf.word-width", "128", "--saf.similarity", "64"),
}
TRUEPAIR = (sys.executable, "-m", "truepair")
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


class Results:
    """The lines of finished runs; several threads may add to them."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def __contains__(self, experiment: Experiment) -> bool:
        asked = json.loads(json.dumps(asdict(experiment)))
        return any(asked.items() <= line.items() for line in self.lines)

    def add(self, line: dict[str, Any]) -> None:
        with self.lock:
            self.lines.append(line)
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def run(experiment: Experiment, data: Path, out: Path) -> dict[str, Any]:
    """Train, or go on, and evaluate on the test split."""
    folder = out / experiment.name
    if (folder / "config.json").exists():
        asked = ["--resume", str(folder)]
    else:
        options = experiment.options
        matcher = options[options.index("--matcher") + 1] if "--matcher" in options else "vse_infty"
        noise = ("--noise", str(experiment.noise), "--seed", str(experiment.seed))
        asked = [str(data), *options, *SIZES[matcher], *noise, "--out", str(folder)]
    subprocess.run(
        [*TRUEPAIR, "train", *asked, "--json"], check=True, env=ONE_THREAD, stdout=subprocess.DEVNULL
    )
    evaluate = [*TRUEPAIR, "evaluate", str(folder), "--json"]
    evaluated = subprocess.run(evaluate, check=True, env=ONE_THREAD, capture_output=True, text=True)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return asdict(experiment) | summary(json.loads(evaluated.stdout), metrics)


def summary(measured: dict[str, Any], metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the tables need, and what the numbers depend on. Seconds are a processor's, sweep included."""
    found = measured["identification"] or {}
    names = ("precision", "recall", "auc", "average_precision", "flagged_pairs", "pairs")
    sources = {source: found[source] for source in ("by_division", "by_labels") if source in found}
    return {
        "networks": [round(network["rsum"], 2) for network in measured["networks"]],
        "ensemble": round(measured["ensemble"]["rsum"], 2),
        "identification": {
            source: {name: {**figures, **figures["mismatched"]}[name] for name in names}
            for source, figures in sources.items()
        },
        "best_epoch": measured["epoch"],
        "epochs": len(metrics),
        "seconds_per_epoch": round(mean(entry["time"]["processor_seconds"] for entry in metrics), 2),
        "noise_measured": measured["training_data"].get("noise", {}).get("measured", 0.0),
        "noise_sha256": measured["training_data"].get("noise", {}).get("sha256"),
        "schedule": measured["config"]["schedule"],
        "versions": measured["versions"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="methods", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="left out: only the tables")
    parser.add_argument(
        "--out", type=Path, default=Path("../runs/methods"), help="where the runs' folders go"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--noise", type=float, nargs="*", help="only these ratios")
    parser.add_argument("--seed", type=int, nargs="*", help="only these seeds")
    parser.add_argument("--row", nargs="*", help="only rows with one of these words")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tables", type=Path, help="the page whose tables are to be written anew")
    options = parser.parse_args()
    results = Results(options.results)

    def wanted(experiment: Experiment) -> bool:
        return (
            experiment not in results
            and (not options.noise or experiment.noise in options.noise)
            and (not options.seed or experiment.seed in options.seed)
            and (not options.row or any(word in experiment.row for word in options.row))
        )

    def work(experiment: Experiment) -> None:
        try:
            line = run(experiment, options.data, options.out)
        except subprocess.CalledProcessError as problem:
            print(f"{experiment.name}: failed. {problem.stderr or ''}", flush=True)
            return
        results.add(line)
        print(f"{experiment.name}: rSum {line['networks']}, {line['ensemble']}", flush=True)

    if options.data is not None:
        todo = [e for part in options.part for e in PARTS[part]() if wanted(e)]
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(work, todo))
    if options.tables:
        options.tables.write_text(fill_page(options.tables.read_text(), results.lines))
        if "results.svg" in options.tables.read_text():
            draw(results.lines, options.tables.parent / "images" / "results.svg")


if __name__ == "__main__":
    main()
