"""Recalls of networks as people read them."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from truepair.cli.output import table

_SIDES, _NUMBERS = ("i2t", "t2i"), {"R@1": "r1", "R@5": "r5", "R@10": "r10", "medr": "medr"}


def recall_table(measured: Mapping[str, Any], caption: str) -> Table:
    """One row per network and one for the ensemble if there are several. measured: as `evaluate_networks` gives it."""
    shown = table(["", *(f"{side} {name}" for side in _SIDES for name in _NUMBERS), "rSum"])
    rows = [(f"network {number}", network) for number, network in enumerate(measured["networks"], 1)]
    if len(rows) > 1:
        rows.append(("ensemble", measured["ensemble"]))
    for name, one in rows:
        numbers = [f"{one[side][key]:.1f}" for side in _SIDES for key in _NUMBERS.values()]
        shown.add_row(name, *numbers, f"{one['rsum']:.1f}")
    shown.caption, shown.caption_justify = caption, "left"
    return shown


def shares(found: Mapping[str, Any]) -> str:
    """Precision, recall and AUC of the wrong pairs, as far as they are known."""
    known = [name for name in ("precision", "recall", "auc") if found[name] is not None]
    return ", ".join(f"{'AUC' if name == 'auc' else name} {found[name]:.3f}" for name in known)
