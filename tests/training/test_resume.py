"""A run that is killed again and again ends bit for bit as one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from truepair.training.run import Run

KILLED = -int(signal.SIGKILL)
SCHEDULE = {"warmup": 1, "pieces": [2], "decay_after": 1, "learning_rate": 5e-3, "batch_size": 40}

# Methods that differ in what a checkpoint must hold: two networks, a division and two streams of pairs; pieces with
# fresh networks, labels that live on and dropout; notes besides beliefs about single pairs.
CHAINS = {
    "ncr": {
        "method": "ncr",
        "values": {"noisy_after": 0.0},
        "schedule": SCHEDULE,
        "options": {"noise": 0.3, "save_every": 2},
        "moments": [
            ["before_config"],
            ["at_step", 0, 0, 1],
            ["at_step", 0, 1, 3],
            ["after_metrics", 0],
            ["in_sweep", 1, 2],
            ["at_step", 1, 0, 3],
            ["within_a_checkpoint", "best", 2],
            ["within_a_checkpoint", "last", 2],
            ["at_step", 2, 1, 0],
            ["within_a_line", 2],
            ["before_ledger"],
        ],
    },
    "crcl": {
        "method": "crcl",
        "values": {"frozen_epochs": 1},
        "schedule": {**SCHEDULE, "warmup": 0, "pieces": [2, 2], "optimiser": "adamw"},
        "options": {"noise": 0.3, "matcher": "sgr", "save_every": 3},
        "moments": [
            ["at_step", 1, 0, 2],
            ["after_metrics", 1],
            ["at_step", 2, 0, 0],
            ["at_step", 2, 0, 4],
            ["within_a_checkpoint", "last", 3],
        ],
    },
    "gsl": {
        "method": "gsl",
        "values": {"anchor_memory": 50},
        "schedule": {**SCHEDULE, "patience": 1},
        "options": {"noise": 0.3, "save_every": 2},
        "moments": [["at_step", 1, 0, 4], ["at_step", 1, 1, 3], ["before_ledger"]],
    },
}
MATCHERS = {
    "vse_infty": {"word_width": 8, "embedding": 16, "position_width": 8, "pooling_hidden": 4},
    "sgr": {"word_width": 8, "embedding": 16, "similarity": 8},
}


@pytest.fixture(params=CHAINS)
def ended(request, tiny_data, tmp_path) -> tuple[Run, Run]:
    """An uninterrupted run and one that was killed at every moment of its chain."""
    task = json.loads(json.dumps(CHAINS[request.param]))
    task |= {"data": str(tiny_data), "whole": str(tmp_path / "whole"), "killed": str(tmp_path / "killed")}
    task["options"]["matcher_options"] = MATCHERS[task["options"].get("matcher", "vse_infty")]
    (tmp_path / "task.json").write_text(json.dumps(task))
    script = Path(__file__).with_name("killed.py")
    process = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "task.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    # Every moment was reached, and every process but the first and the last was really killed there.
    assert json.loads(process.stdout) == [0, *[KILLED] * len(task["moments"]), 0], process.stderr
    return Run(tmp_path / "whole"), Run(tmp_path / "killed")


def without_time(run: Run) -> list[dict]:
    return [{name: value for name, value in entry.items() if name != "time"} for entry in run.metrics]


def test_killed_runs_end_as_if_nothing_had_happened(ended):
    whole, killed = ended
    assert without_time(killed) == without_time(whole)
    assert len(without_time(whole)) >= 2
    for which in ("last", "best"):
        assert killed.checkpoint_path(which).read_bytes() == whole.checkpoint_path(which).read_bytes()
    assert killed.ledger().equals(whole.ledger())
    history = sorted(path.name for path in whole.beliefs_folder().iterdir())
    assert sorted(path.name for path in killed.beliefs_folder().iterdir()) == history
    for name in history:
        assert (killed.beliefs_folder() / name).read_bytes() == (whole.beliefs_folder() / name).read_bytes()
    assert not list(killed.folder.rglob(".*")), "half-written files were left behind"


def test_the_command_line_goes_on_after_a_kill(tiny_data, tmp_path):
    folder = tmp_path / "run"
    sizes = [f"--vse-infty.{name.replace('_', '-')}={value}" for name, value in MATCHERS["vse_infty"].items()]
    command = [sys.executable, "-m", "truepair", "train"]
    options = [str(tiny_data), "--method=plain", "--noise=0.2", f"--out={folder}", "--save-every=2", *sizes]
    options += ["--schedule.warmup=0", "--schedule.pieces=60", "--schedule.batch-size=20"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 120
        while len(Run(folder).metrics if (folder / "config.json").exists() else []) < 2:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert process.returncode == KILLED
    config = json.loads((folder / "config.json").read_text())
    config["config"]["schedule"]["pieces"] = [len(Run(folder).metrics) + 2]  # enough to see it go on
    (folder / "config.json").write_text(json.dumps(config))
    resumed = subprocess.run(
        [*command, f"--resume={folder}", "--json"], capture_output=True, text=True, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["epochs"] == config["config"]["schedule"]["pieces"][0]
    assert [entry["epoch"] for entry in Run(folder).metrics] == list(range(len(Run(folder).metrics)))
    assert isinstance(Run(folder).ledger(), pl.DataFrame)
