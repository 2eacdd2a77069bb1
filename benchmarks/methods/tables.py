"""Markdown tables of finished runs, and the page they stand in."""

import re
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

from methods.experiments import CEILING, PARTS

Line = dict[str, Any]
MARK = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(page: str, lines: Sequence[Line]) -> str:
    """The page with every table between `<!-- table: PART KIND -->` and `<!-- end -->` written anew."""

    def filled(mark: re.Match[str]) -> str:
        head, part, kind, tail = mark.groups()
        own = [line for line in lines if line["part"] == part]
        return f"{head}{table(own, part, KINDS[kind])}\n{tail}"

    return MARK.sub(filled, page)


def table(lines: Sequence[Line], part: str, cell: Callable[[Sequence[Line]], str]) -> str:
    """Rows in the order of the experiments, a column per noise ratio, and seconds where they were measured."""
    rows = list(dict.fromkeys(experiment.row for experiment in PARTS[part]()))
    noises = sorted({line["noise"] for line in lines})
    text = ["| | " + " | ".join(f"{noise:.0%} noise" for noise in noises) + " | s / epoch |"]
    text.append("|---|" + "---|" * (len(noises) + 1))
    for row in rows:
        own = [line for line in lines if line["row"] == row]
        if own:
            cells = [cell([line for line in own if line["noise"] == noise]) for noise in noises]
            seconds = f"{mean(line['seconds_per_epoch'] for line in own):.0f}"
            text.append(f"| {row} | " + " | ".join(cells) + f" | {seconds} |")
    return "\n".join(text)


def rsums(lines: Sequence[Line]) -> str:
    """A single network's test rSum, its spread over seeds, and the ensemble's where there is one."""
    if not lines:
        return ""
    single = [mean(line["networks"]) for line in lines]
    text = f"{mean(single):.1f}" + (f" ± {stdev(single):.1f}" if len(single) > 1 else "")
    if len(lines[0]["networks"]) > 1:
        text += f" ({mean(line['ensemble'] for line in lines):.1f})"
    return text


def found(source: str) -> Callable[[Sequence[Line]], str]:
    """Precision, recall and AUC of the wrong pairs; without any, the share of pairs that were called wrong."""

    def cell(lines: Sequence[Line]) -> str:
        figures = [line["identification"].get(source) for line in lines]
        known = [figure for figure in figures if figure is not None]
        if not known or lines[0]["row"] == CEILING:
            return "–"
        if not lines[0]["noise"]:
            return f"{mean(figure['flagged_pairs'] / figure['pairs'] for figure in known):.1%} flagged"
        return " / ".join(
            _mean([figure[name] for figure in known]) for name in ("precision", "recall", "auc")
        )

    return cell


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{mean(known):.3f}" if known else "–"


KINDS = {"rsum": rsums, "division": found("by_division"), "labels": found("by_labels")}
