"""Two processes on a CPU do what one does, and say it once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from truepair.training.run import Run

SCHEDULE = {"warmup": 1, "pieces": [2], "decay_after": 1, "learning_rate": 1e-3, "batch_size": 33}
VSE = {"word_width": 8, "embedding": 16, "position_width": 8, "pooling_hidden": 4}
SGRAF = {"word_width": 8, "embedding": 16, "similarity": 8, "dropout": 0.0}
RUNS = {
    "plain-vse_infty": {"method": "plain", "options": {"matcher": "vse_infty", "matcher_options": VSE}},
    "ncr-vse_infty": {
        "method": "ncr",
        "values": {"noisy_after": 0.0},
        "options": {"matcher": "vse_infty", "matcher_options": VSE},
    },
    # Sparse similarities of the hardest negatives, batch norm over slots and over vectors, spectra, masks.
    "gsl-sgr": {
        "method": "gsl",
        "options": {
            "matcher": "sgr",
            "matcher_options": {**SGRAF, "region_norm": "slot", "region_slots": 6},
        },
    },
    # Mixed precision, where tensors of two kinds are gathered.
    "recon-bf16": {
        "method": "recon",
        "options": {"matcher": "vse_infty", "matcher_options": VSE, "precision": "bf16"},
    },
    # Batch norm inside of the similarities, whose running statistics move once per text.
    "crcl-saf": {
        "method": "crcl",
        "options": {"matcher": "saf", "matcher_options": SGRAF},
        "schedule": {**SCHEDULE, "warmup": 0, "pieces": [1, 1]},
    },
}


EXACT = [name for name in RUNS if not name.endswith("bf16")]


def launched(*arguments: str, processes: int = 2, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    """Run a script or `-m module` under torchrun, or alone if there is one process."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.run(
        [sys.executable, *(torchrun if processes > 1 else []), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def masked_data(tiny_data, tmp_path_factory) -> Path:
    """The tiny data, where only a few images have padded regions: most shares of a batch have no mask."""
    folder = tmp_path_factory.mktemp("masked")
    for path in tiny_data.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for split in ("train", "dev", "test"):
        counts = np.full(len(np.load(folder / f"{split}_ims.npy")), 6)
        counts[0] = 4
        np.save(folder / f"{split}_region_counts.npy", counts)
    return folder


@pytest.fixture(scope="module")
def trained(tiny_data, masked_data, tmp_path_factory) -> dict[int, Path]:
    """The folders with all runs by one process and by two."""
    script = str(Path(__file__).with_name("together.py"))
    folders = {}
    for processes in (1, 2):
        out = folders[processes] = tmp_path_factory.mktemp(f"by{processes}")
        runs = {name: {"schedule": SCHEDULE, **run} for name, run in RUNS.items()}
        for run in runs.values():
            run["options"] = {**run["options"], "noise": 0.3, "seed": 1}
        (out / "task.json").write_text(json.dumps({"data": str(masked_data), "runs": runs}))
        ended = launched(script, str(out / "task.json"), str(out), processes=processes)
        assert ended.returncode == 0, ended.stderr
        assert "FutureWarning" not in ended.stderr
    return folders


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_have_the_losses_of_one(trained, name):
    losses = [np.array([entry["loss"] for entry in Run(out / name).metrics]) for out in trained.values()]
    assert losses[0].shape == losses[1].shape
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5 if name in EXACT else 0.05)


@pytest.mark.parametrize("name", EXACT)
def test_two_processes_end_with_the_beliefs_of_one(trained, name):
    one = Run(trained[1] / name).ledger()
    two = Run(trained[2] / name).ledger()
    assert one.columns == two.columns
    # The phase of a small Fourier component, which GSL's labels read, turns rounding errors into small angles.
    atol = 5e-3 if name.startswith("gsl") else 1e-4
    for column in one.columns:
        if one[column].dtype.is_float():
            np.testing.assert_allclose(two[column].to_numpy(), one[column].to_numpy(), atol=atol)
        elif not column.endswith("_history"):
            assert one[column].equals(two[column]), column


@pytest.mark.parametrize("name", RUNS)
def test_both_processes_believe_the_same(trained, name):
    ledgers = [load_file(trained[2] / f"{name}.rank{rank}.safetensors") for rank in (0, 1)]
    assert ledgers[0].keys() == ledgers[1].keys()
    for column in ledgers[0]:
        assert torch.equal(ledgers[0][column], ledgers[1][column]), column


@pytest.mark.parametrize("name", EXACT)
def test_two_processes_train_the_networks_of_one(trained, name):
    # The sum of what all steps did: wrong gradients or wrong batch statistics would show in some tensor.
    one, two = (Run(out / name).checkpoint("last").tensors for out in trained.values())
    assert one.keys() == two.keys()
    for tensor in one:
        labels_of_gsl = name.startswith("gsl") and tensor == "ledger.correspondence"
        torch.testing.assert_close(
            two[tensor].float(),
            one[tensor].float(),
            atol=5e-3 if labels_of_gsl else 2e-4,  # see above
            rtol=2e-3,
            msg=lambda m, t=tensor: f"{t}: {m}",
        )


def test_an_error_in_one_process_ends_all(tiny_data, tmp_path):
    wanted = {**RUNS["plain-vse_infty"], "schedule": SCHEDULE, "fails_on": "1"}
    (tmp_path / "task.json").write_text(json.dumps({"data": str(tiny_data), "runs": {"run": wanted}}))
    script = str(Path(__file__).with_name("together.py"))
    ended = launched(script, str(tmp_path / "task.json"), str(tmp_path), timeout=90)
    assert ended.returncode != 0
    assert "something is wrong on this machine only" in ended.stderr


def test_the_command_line_prints_once(tiny_data, tmp_path):
    sizes = [f"--vse-infty.{name.replace('_', '-')}={value}" for name, value in VSE.items()]
    options = [str(tiny_data), "--method=plain", f"--out={tmp_path / 'run'}", "--json", *sizes]
    options += ["--schedule.warmup=0", "--schedule.pieces=1", "--schedule.batch-size=50"]
    ended = launched("-m", "truepair", "train", *options)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["epochs"] == 1
    assert len(Run(tmp_path / "run").metrics) == 1
