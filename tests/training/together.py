"""Run by test_two_processes.py under torchrun: trains every run of a task, or fails in one process only.

Usage: together.py TASK.json OUT. Every process writes its ledger to OUT/NAME.rankN.safetensors.
"""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from truepair.errors import TruepairError
from truepair.methods.registry import find_method
from truepair.training import fit, loop
from truepair.training.schedule import Schedule

TRAIN = loop.Trainer.train


def keep_ledger(out: Path, name: str) -> None:
    """Write what this process believes when training has ended."""

    def train(self):
        TRAIN(self)
        rank = os.environ.get("RANK", "0")
        save_file(self.ledger.columns(), out / f"{name}.rank{rank}.safetensors")

    loop.Trainer.train = train


def main() -> None:
    torch.set_num_threads(1)
    task, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for name, wanted in task["runs"].items():
        keep_ledger(out, name)
        if wanted.get("fails_on") == os.environ.get("RANK", "0"):
            loop.Trainer._scores = lambda *_: fail()
        schedule = Schedule(**{**wanted["schedule"], "pieces": tuple(wanted["schedule"]["pieces"])})
        method = find_method(wanted["method"])(**wanted.get("values", {}))
        fit.fit(task["data"], method, out=out / name, schedule=schedule, quiet=True, **wanted["options"])


def fail():
    raise TruepairError("something is wrong on this machine only")


if __name__ == "__main__":
    main()
