"""The results page's picture: test rSum over the share of wrong pairs."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# Colours that people with any colour vision tell apart, and a mark of its own for each row.
STYLES = {
    "true pairs only, InfoNCE": ("black", "--", "", "true pairs only"),
    "srem": ("#0072b2", "-", "o", "SREM"),
    "recon": ("#009e73", "-", "s", "ReCon"),
    "witness prior, InfoNCE": ("#cc79a7", "-", "D", "InfoNCE + our prior"),
    "crcl": ("#56b4e9", "-", "^", "CRCL"),
    "ncr": ("#e69f00", "-", "v", "NCR"),
    "gsl": ("#d55e00", "-", "P", "GSL"),
    "plain, InfoNCE": ("#777777", ":", "x", "InfoNCE"),
    "plain, triplet": ("#aaaaaa", ":", "+", "triplet"),
}


def draw(lines: Sequence[dict[str, Any]], target: Path) -> None:
    """One line per row of the main table, single networks, means over seeds; names stand at the ends of the lines."""
    main = [line for line in lines if line["part"] == "main"]
    figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    ends = []
    for row, (color, dashes, mark, name) in STYLES.items():
        noises = sorted({line["noise"] for line in main if line["row"] == row})
        means = [
            mean(mean(line["networks"]) for line in main if (line["row"], line["noise"]) == (row, noise))
            for noise in noises
        ]
        if noises:
            axes.plot(noises, means, dashes, color=color, marker=mark, label=name)
            ends.append([means[-1], noises[-1], means[-1], color, name])
    for end, height in zip(sorted(ends), _apart([end[0] for end in sorted(ends)], 11.5), strict=True):
        _, x, y, color, name = end
        arrow = {"arrowstyle": "-", "color": color, "lw": 0.6}
        axes.annotate(name, (x, y), (0.835, height), color=color, va="center", fontsize=9, arrowprops=arrow)
    axes.set(
        xlabel="share of wrong pairs", ylabel="test rSum, single network", xlim=(-0.02, 1.03), ylim=(0, None)
    )
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8], ["0 %", "20 %", "40 %", "60 %", "80 %"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    target.parent.mkdir(exist_ok=True)
    # No date and fixed ids: the same results make the same file.
    with matplotlib.rc_context({"svg.hashsalt": "truepair"}):
        figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Rising heights for the names, at least a gap between two."""
    heights: list[float] = []
    for value in values:
        heights.append(max(value, heights[-1] + gap) if heights else value)
    return heights
