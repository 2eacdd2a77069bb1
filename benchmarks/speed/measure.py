"""Medians of alternating repetitions, peaks of memory, what else the machine does, and what it could do at best."""

import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Item:
    """One comparison. ours, reference: the same work, called again and again. difference: of the results of both.

    wanted: the ratio reference / ours to reach. repeats: of either side. counted: whether counting its matrix
    products says anything about its limit. part: the share of the work that reference does; its seconds are scaled up.
    """

    name: str
    ours: Callable[[], Any]
    reference: Callable[[], Any]
    difference: Callable[[Any, Any], float]
    wanted: float
    repeats: int = 5
    counted: bool = False
    part: float = 1.0


@dataclass(frozen=True)
class Result:
    """Seconds are medians. limit: seconds of ours at the machine's best matrix product; None if not counted."""

    name: str
    ours: float
    reference: float
    ratio: float
    wanted: float
    difference: float
    limit: float | None
    others: float
    """Share of the processors that other processes took meanwhile."""


def compare(item: Item, flops_per_second: float) -> Result:
    """Both sides in turn, so that what disturbs one disturbs the other as well."""
    difference = item.difference(item.ours(), item.reference())
    limit = count_flops(item.ours) / flops_per_second if item.counted else None
    ours, reference, ratios = [], [], []
    load = Load()
    for _ in range(item.repeats):
        a, b = seconds(item.ours), seconds(item.reference) / item.part
        ours.append(a)
        reference.append(b)
        ratios.append(b / a)
    return Result(
        item.name,
        statistics.median(ours),
        statistics.median(reference),
        statistics.median(ratios),
        item.wanted,
        difference,
        limit,
        load.others(),
    )


def seconds(work: Callable[[], Any]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def count_flops(work: Callable[[], Any]) -> int:
    """Multiplications and additions of the matrix products of a call."""
    custom: dict[Any, Any] = {}
    if torch._C._has_mkldnn:
        custom[torch.ops.mkldnn._linear_pointwise] = _linear_flops
    with FlopCounterMode(display=False, custom_mapping=custom) as counter:
        work()
    return int(counter.get_total_flops())


def _linear_flops(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    rows = 1
    for size in x[:-1]:
        rows *= size
    return int(2 * rows * x[-1] * weight[0])


def best_flops_per_second(size: int = 2048) -> float:
    """The best of several large matrix products, by either library that torch can call."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    products: list[Callable[[], Any]] = [lambda: a @ b]
    if torch._C._has_mkldnn:
        products.append(lambda: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], ""))
    fastest = min(seconds(product) for product in products for _ in range(8))
    return float(2 * size**3 / fastest)


class Load:
    """What share of the processors other processes have taken since it was made."""

    def __init__(self) -> None:
        self.began, self.own, self.busy = time.perf_counter(), _own_seconds(), _busy_seconds()

    def others(self) -> float:
        """0 on a machine of our own; not known (0) where there is no /proc."""
        elapsed = (time.perf_counter() - self.began) * (os.cpu_count() or 1)
        busy, own = _busy_seconds() - self.busy, _own_seconds() - self.own
        return max(0.0, (busy - own) / elapsed) if elapsed else 0.0


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float:
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    fields = [int(field) for field in stat.read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def peak_growth(work: Callable[[], Any]) -> int:
    """By how many bytes the process was larger at its peak than before a call; for a fresh process only."""
    before = _resident()
    work()
    return max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
