"""People's decisions about suspects: one JSON object a line, only ever added to, the last one for a pair counts."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from truepair.errors import DataError

Verdict = Literal["keep", "drop", "rematch", "undecided"]
Order = Literal["strongest", "random"]


@dataclass(frozen=True)
class Decision:
    """What somebody decided about a pair.

    keep: it is a true pair. drop: it is wrong. rematch: it is wrong, and the text belongs to the image image_id.
    undecided: takes an earlier decision back. order: how the pair came up; only random ones say something about
    all flagged pairs.
    """

    pair_id: str
    decision: Verdict
    time: str = ""
    reviewer: str = ""
    order: Order = "strongest"
    image_id: str | None = None


def now() -> str:
    """The time of a decision, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def append_decision(path: Path, decision: Decision) -> None:
    """Add one decision and see it to the disk."""
    line = json.dumps({k: v for k, v in asdict(decision).items() if v is not None}, ensure_ascii=False)
    with path.open("a+b") as file:
        # A line that was cut off when its writer was killed must not swallow this one.
        if file.tell() and _last_byte(path) != b"\n":
            line = "\n" + line
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_decisions(path: Path) -> dict[str, Decision]:
    """The decision that counts for every pair that has one, in the order in which they were made."""
    decisions: dict[str, Decision] = {}
    if not path.exists():
        return decisions
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        decision = _parsed(line)
        if decision is None:
            if number == len(lines) or _looks_cut_off(line):
                continue
            raise DataError(
                path,
                "this is not a decision.",
                f'A line needs "pair_id" and "decision" ({", ".join(get_args(Verdict))}). Mend or remove it.',
                row=f"line {number:,}",
            )
        decisions.pop(decision.pair_id, None)
        if decision.decision != "undecided":
            decisions[decision.pair_id] = decision
    return decisions


def wilson(right: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % confidence interval of a share by Wilson's score; (0, 1) if nothing was counted."""
    if not total:
        return 0.0, 1.0
    share = right / total
    middle = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def status(suspects: pl.DataFrame, decisions: Mapping[str, Decision]) -> dict[str, Any]:
    """How far the review is, and the precision of the audit: how many of the flagged pairs people found wrong.

    Pairs that came up strongest first are surer than the rest; only those drawn at random speak for all flagged.
    """
    flagged = set(suspects.filter("is_mismatch")["pair_id"])
    known = set(suspects["pair_id"])
    counted = [decision for decision in decisions.values() if decision.pair_id in flagged]
    others = [decision for decision in decisions.values() if decision.pair_id in known - flagged]
    return {
        "flagged": len(flagged),
        "reviewed": len(counted),
        "remaining": len(flagged) - len(counted),
        **{name: sum(d.decision == name for d in counted) for name in ("keep", "drop", "rematch")},
        "not_flagged_but_decided": len(others),
        "precision": _precision(counted),
        "precision_of_random": _precision([d for d in counted if d.order == "random"]),
        "wrong_among_not_flagged": _precision(others),
    }


def _precision(decisions: Iterable[Decision]) -> dict[str, Any]:
    verdicts = [decision.decision != "keep" for decision in decisions]
    low, high = wilson(sum(verdicts), len(verdicts))
    return {
        "share": sum(verdicts) / len(verdicts) if verdicts else None,
        "interval": [low, high],
        "pairs": len(verdicts),
    }


def _parsed(line: bytes) -> Decision | None:
    """The decision of a line; other front ends may add fields of their own. None if it is none."""
    try:
        found = json.loads(line)
        known = {name: found[name] for name in Decision.__dataclass_fields__ if name in found}
        decision = Decision(**known)
    except (ValueError, TypeError):
        return None
    if not isinstance(decision.pair_id, str) or decision.decision not in get_args(Verdict):
        return None
    return decision


def _looks_cut_off(line: bytes) -> bool:
    return line.startswith(b"{") and not line.rstrip().endswith(b"}")


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
