"""Trains every method on one data set at several noise ratios and writes the table of docs/results.md.

    python benchmarks/methods.py DATA --out RUNS [--part main long division ablation sgr] [--jobs 2]
    python benchmarks/methods.py DATA --out RUNS --table docs/results.md

Runs that are finished are not repeated, runs that were stopped go on; each uses one thread. Sizes are reduced
(embedding 256, similarity 64) and every method gets the same twelve epochs, CRCL's divided into its pieces.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

SIZES = ["--vse_infty.embedding", "256", "--vse_infty.word-width", "128"]
SGR_SIZES = ["--sgr.embedding", "256", "--sgr.word-width", "128", "--sgr.similarity", "64"]
ROBUST = ("ncr", "crcl", "srem", "recon", "gsl")
DIVIDING = ("ncr", "recon", "gsl")


@dataclass(frozen=True)
class Experiment:
    """One row of a table at one noise ratio and seed. options: what the command line gets besides."""

    part: str
    row: str
    noise: float
    seed: int
    options: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.part}--{self.row}--{self.noise}--{self.seed}".replace(" ", "_").replace("/", "-")


def main_table() -> Iterator[Experiment]:
    """Twelve epochs for everybody. InfoNCE needs no warm-up; CRCL's row below is the schedule it was published for."""
    at_once = ("--schedule.warmup", "0", "--schedule.pieces", "12")
    triplet = ("--plain.objective", "triplet", "--schedule.warmup", "1", "--schedule.pieces", "11")
    rows = {
        "plain, triplet": ("--method", "plain", *triplet, "--schedule.decay-after", "6"),
        "plain, InfoNCE": ("--method", "plain", *at_once),
        "true pairs only, InfoNCE": ("--method", "plain", "--true-pairs-only", *at_once),
        "witness prior, InfoNCE": ("--method", "plain", "--prior", "witness", *at_once),
        **{name: ("--method", name) for name in ROBUST},
    }
    for seed, noises in ((123, (0.4, 0.8, 0.0, 0.2, 0.6)), (124, (0.4,)), (125, (0.4,))):
        for noise in noises:
            for row, options in rows.items():
                if not (noise == 0 and "--true-pairs-only" in options):
                    yield Experiment("main", row, noise, seed, options)


def division_table() -> Iterator[Experiment]:
    for noise in (0.4, 0.8, 0.0):
        for name in DIVIDING:
            yield Experiment(
                "division", f"{name}, repairing", noise, 123, ("--method", name, "--division", "repairing")
            )
        for name in (*DIVIDING, "crcl"):
            yield Experiment(
                "division", f"{name}, witness prior", noise, 123, ("--method", name, "--prior", "witness")
            )


def ablation_table() -> Iterator[Experiment]:
    switches = {
        "gsl": {
            "L_w only": ("no-galc", "no-foa2", "no-sct"),
            "GALC": ("no-foa2", "no-sct"),
            "GALC + FoA2": ("no-sct",),
            "GALC, printed labels": ("label-form raw",),
            "anchor memory 1024": ("anchor-memory 1024",),
        },
        "crcl": {
            "L_d": ("no-complementary", "no-correction"),
            "L_r": ("no-active", "no-correction"),
            "L_d + L_r": ("no-correction",),
            "L_d + SCC": ("no-complementary",),
        },
        "recon": {
            "no true-positive identification": ("no-true-positives",),
            "no L_IM": ("no-relations",),
            "no lambda": ("no-penalty",),
        },
        "srem": {
            "L_w + L_c": ("no-bounding",),
            "L_w + L_u": ("no-complementary",),
            "L_u + L_c": ("no-ranking",),
            "L_c*": ("reading uniform",),
            "L_c as printed": ("reading product", "answers scores"),
        },
        "ncr": {
            "no co-divide": ("no-co-divide",),
            "no co-rectify": ("no-co-rectify",),
            "linear margin": ("soft-margin linear",),
            "sine margin": ("soft-margin sine",),
            "published predictions": ("separate-predictions",),
        },
    }
    for method, rows in switches.items():
        for row, flags in rows.items():
            words = [word for flag in flags for word in f"--{method}.{flag}".split(" ")]
            yield Experiment("ablation", f"{method}: {row}", 0.4, 123, ("--method", method, *words))


def sgr_table() -> Iterator[Experiment]:
    """Half the epochs: two networks of cross-attention take their time on a processor."""
    schedule = ("--schedule.warmup", "1", "--schedule.pieces", "5", "--schedule.decay-after", "4")
    common = ("--matcher", "sgr", "--first-images", "1000", *schedule)
    for method in ("plain", "ncr", "gsl"):
        objective = ("--plain.objective", "triplet") if method == "plain" else ()
        yield Experiment("sgr", f"sgr, {method}", 0.4, 123, ("--method", method, *common, *objective))


def long_table() -> Iterator[Experiment]:
    """CRCL with pieces as long as it was published with on this kind of data: twice the epochs of the others."""
    schedule = ("--schedule.pieces", "4", "4", "4", "12", "--schedule.decay-after", "7")
    for noise, seed in ((0.4, 123), (0.8, 123), (0.4, 124), (0.4, 125)):
        yield Experiment("long", "crcl, 24 epochs", noise, seed, ("--method", "crcl", *schedule))
        prior = ("--prior", "witness")
        if seed == 123:
            row = "crcl, 24 epochs, witness prior"
            yield Experiment("long", row, noise, seed, ("--method", "crcl", *schedule, *prior))


PARTS = {
    "main": main_table,
    "long": long_table,
    "division": division_table,
    "ablation": ablation_table,
    "sgr": sgr_table,
}


def run(experiment: Experiment, data: Path, out: Path) -> None:
    folder, result = out / experiment.name, out / f"{experiment.name}.json"
    if result.exists():
        return
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    truepair = [sys.executable, "-m", "truepair"]
    if (folder / "config.json").exists():
        command = [*truepair, "train", "--resume", str(folder), "--json"]
    else:
        sizes = SGR_SIZES if "sgr" in experiment.options else SIZES
        asked = [
            "--noise",
            str(experiment.noise),
            "--seed",
            str(experiment.seed),
            "--out",
            str(folder),
            "--json",
        ]
        command = [*truepair, "train", str(data), *experiment.options, *sizes, *asked]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    evaluated = subprocess.run(
        [*truepair, "evaluate", str(folder), "--json"],
        check=True,
        env=environment,
        capture_output=True,
        text=True,
    )
    measured = json.loads(evaluated.stdout)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = mean(entry["time"]["sweep_seconds"] + entry["time"]["train_seconds"] for entry in metrics)
    entry = asdict(experiment) | {"seconds_per_epoch": seconds, "epochs": len(metrics)}
    for key in ("networks", "ensemble", "identification", "epoch", "config", "training_data", "versions"):
        entry[key] = measured[key]
    entry["training_data"].pop("sources")
    entry["config"].pop("data")
    result.write_text(json.dumps(entry, indent=1))
    print(f"{experiment.name}: rSum {measured['ensemble']['rsum']:.1f}", flush=True)


def table(results: list[dict[str, Any]], part: str) -> list[str]:
    """Markdown: a row per method, the columns the noise ratios, means over seeds with their spread."""
    found = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result["part"] == part:
            found[result["row"]][result["noise"]].append(result)
    noises = sorted({noise for row in found.values() for noise in row})
    lines = [
        "| | "
        + " | ".join(f"{noise:.0%} noise" for noise in noises)
        + " | wrong pairs found (AUC) | s / epoch |",
        "|---|" + "---|" * (len(noises) + 2),
    ]
    for row, by_noise in found.items():
        cells = [_rsums(by_noise.get(noise, [])) for noise in noises]
        aucs = [
            f"{noise:.0%}: {_mean_auc(runs)}" for noise, runs in sorted(by_noise.items()) if _mean_auc(runs)
        ]
        seconds = mean(r["seconds_per_epoch"] for runs in by_noise.values() for r in runs)
        lines.append(f"| {row} | " + " | ".join(cells) + f" | {', '.join(aucs) or '–'} | {seconds:.0f} |")
    return lines


def _rsums(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "–"
    single = [mean(network["rsum"] for network in r["networks"]) for r in runs]
    text = f"{mean(single):.1f}" + (f" ± {stdev(single):.1f}" if len(single) > 1 else "")
    if len(runs[0]["networks"]) > 1:
        text += f" ({mean(r['ensemble']['rsum'] for r in runs):.1f})"
    return text


def _mean_auc(runs: list[dict[str, Any]]) -> str | None:
    aucs = [
        r["identification"]["auc"]
        for r in runs
        if r["identification"] and r["identification"]["auc"] is not None
    ]
    informative = [a for a in aucs if a != 0.5]
    return f"{mean(informative):.3f}" if informative else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--noise", type=float, nargs="*", help="only these ratios")
    parser.add_argument("--seed", type=int, nargs="*", help="only these seeds")
    parser.add_argument(
        "--table", type=Path, help="write the tables of all results in --out into this page and stop"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        results = [json.loads(path.read_text()) for path in sorted(arguments.out.glob("*.json"))]
        text = "\n\n".join(
            f"<!-- {part} -->\n" + "\n".join(table(results, part))
            for part in PARTS
            if any(r["part"] == part for r in results)
        )
        arguments.table.write_text(text + "\n")
        return
    experiments = [
        e
        for part in arguments.part
        for e in PARTS[part]()
        if (not arguments.noise or e.noise in arguments.noise)
        and (not arguments.seed or e.seed in arguments.seed)
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda e: run(e, arguments.data, arguments.out), experiments))


if __name__ == "__main__":
    main()
