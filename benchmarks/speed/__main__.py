"""Writes the table of docs/speed.md: our implementations against plain ones of the published algorithms.

    make speed
    cd benchmarks && python -m speed [--only WORDS ...] [--json FILE] [--threads 2]

Ratios are medians of alternating repetitions in one run. Nothing absolute is promised: the seconds are this machine's.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from speed.epochs import epoch_costs
from speed.items import all_items, batch_of, matcher_of
from speed.measure import Item, Result, best_flops_per_second, compare, peak_growth
from truepair.evaluation.similarity import matcher_scorer, ranks_blockwise

PEAKS = ("SGR step, hardest negatives", "SAF step", "VSE-infinity + CRCL step")
HEAD = "| | ours, s | plain, s | ratio | wanted | limit, s | difference | others |\n|" + "---|" * 8


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="items with these words in their names")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--peak", nargs=2, metavar=("ITEM", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print(peak(*options.peak))
        return
    flops = best_flops_per_second()
    print(
        f"Best matrix product: {flops / 1e9:.0f} GFlop/s in fp32, {options.threads} threads\n\n{HEAD}",
        flush=True,
    )
    results = []
    for name, make in all_items().items():
        if chosen(name, options.only):
            results.append(compare(make(), flops))
            print(line(results[-1]), flush=True)
    memory = shown("Peak of memory above data and weights", memory_table(options.only))
    epochs = shown("Epochs", epoch_costs() if chosen("epochs", options.only) else ())
    if any(result.others > 0.1 for result in results):
        print("\nOther processes took more than a tenth of the machine: repeat on a quiet one.")
    if options.json:
        everything = {
            "flops_per_second": flops,
            "threads": options.threads,
            "torch": torch.__version__,
            "items": [asdict(result) for result in results],
            "memory": memory,
            "epochs": epochs,
        }
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


def shown(title: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print each row as soon as it is measured."""
    seen = []
    for row in rows:
        if not seen:
            print(f"\n{title}\n")
        print(f"- {row['name']}: {row['text']}", flush=True)
        seen.append(row)
    return seen


def chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(word.lower() in name.lower() for word in only)


def line(result: Result) -> str:
    limit = "–" if result.limit is None else f"{result.limit:.3f}"
    return (
        f"| {result.name} | {result.ours:.4f} | {result.reference:.3f} | **{result.ratio:.1f}** | {result.wanted:g} "
        f"| {limit} | {result.difference:.1e} | {result.others:.0%} |"
    )


def memory_table(only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every side in a process of its own, since a peak never falls."""
    for name in PEAKS:
        if chosen(name, only):
            ours, plain = (_peak_elsewhere(name, side) for side in ("ours", "reference"))
            text = f"{ours / 2**20:.0f} MB, plain {plain / 2**20:.0f} MB ({ours / plain:.2f})"
            yield {"name": name, "ours": ours, "reference": plain, "text": text}
    if chosen(EVALUATION, only):
        grown = _peak_elsewhere(EVALUATION, "ours")
        yield {"name": EVALUATION, "ours": grown, "text": f"{grown / 2**20:.0f} MB"}


EVALUATION = "SGR evaluation, 1,000 x 5,000"


def peak(name: str, side: str) -> int:
    """In this process: bytes above what data and weights take."""
    if name == EVALUATION:
        return peak_growth(_evaluation())
    item: Item = all_items()[name]()
    work: Callable[[], Any] = item.ours if side == "ours" else item.reference
    return peak_growth(work)


def _evaluation() -> Callable[[], Any]:
    matcher = matcher_of("sgr", similarity=64).eval()
    with torch.no_grad():
        regions, words, lengths = batch_of(1000, 5000)
        scorer = matcher_scorer(matcher, matcher.encode_images(regions), matcher.encode_texts(words, lengths))
    return lambda: ranks_blockwise(scorer, torch.arange(5000).numpy() // 5, shown=False)


def _peak_elsewhere(name: str, side: str) -> int:
    command = [sys.executable, "-m", "speed", "--peak", name, side, "--threads", str(torch.get_num_threads())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return int(done.stdout)


if __name__ == "__main__":
    main()
