import json

import pytest
import torch
from torch import nn

from truepair import files
from truepair.errors import DataError
from truepair.training import checkpoints
from truepair.training.checkpoints import Checkpoint


@pytest.fixture
def checkpoint() -> Checkpoint:
    tensors = {
        "network0.weight": torch.randn(3, 4),
        "network0.steps": torch.tensor(7),
        "network1.weight": torch.randn(2, 2).T,
        "ledger.partition": torch.tensor([[1, 2]], dtype=torch.uint8),
        "half": torch.randn(5).bfloat16(),
    }
    return Checkpoint(tensors, {"position": {"epoch": 3, "loss_sums": [0.1 + 0.2, 1e-17]}})


def test_what_is_written_is_read(checkpoint, tmp_path):
    checkpoints.write(tmp_path / "some" / "last.safetensors", checkpoint)
    found = checkpoints.read(tmp_path / "some" / "last.safetensors")
    assert found.facts == checkpoint.facts
    assert found.tensors.keys() == checkpoint.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        assert torch.equal(found.tensors[name], tensor)
        assert found.tensors[name].dtype == tensor.dtype
    assert list(found.part("network0.")) == ["steps", "weight"]


def test_a_failed_write_leaves_the_old_file(checkpoint, tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    checkpoints.write(path, checkpoint)
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        checkpoints.write(path, Checkpoint({"other": torch.ones(9)}, {}))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.safetensors"]


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_cut_file_is_refused_with_its_name(checkpoint, tmp_path, kept):
    path = tmp_path / "last.safetensors"
    checkpoints.write(path, checkpoint)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"last\.safetensors.*not a checkpoint"):
        checkpoints.read(path)


def test_files_that_hold_something_else_are_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(DataError, match="not a checkpoint of this program"):
        checkpoints.read(path)
    path.write_text(json.dumps({"no": "tensors"}) * 20)
    with pytest.raises(DataError, match="not a checkpoint"):
        checkpoints.read(path)
    with pytest.raises(DataError, match="no such checkpoint"):
        checkpoints.read(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_an_optimiser_goes_on_as_if_nothing_had_happened(kind):
    torch.manual_seed(0)
    network, inputs = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)), torch.randn(6, 5, 4)
    # A parameter without gradients has no moments.
    network.idle = nn.Parameter(torch.ones(2))

    def steps(network, optimiser, batches):
        for batch in batches:
            optimiser.zero_grad(set_to_none=True)
            network(batch).square().sum().backward()
            optimiser.step()

    optimiser = kind(network.parameters(), lr=0.1)
    steps(network, optimiser, inputs[:3])
    saved = checkpoints.networks_tensors([network]) | checkpoints.optimiser_tensors(optimiser, "optimiser0.")
    saved = {name: tensor.clone() for name, tensor in saved.items()}
    steps(network, optimiser, inputs[3:])

    other = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    other.idle = nn.Parameter(torch.zeros(2))
    resumed = kind(other.parameters(), lr=0.1)
    checkpoint = Checkpoint(saved, {})
    checkpoints.restore_networks([other], checkpoint)
    checkpoints.restore_optimiser(resumed, checkpoint.part("optimiser0."))
    steps(other, resumed, inputs[3:])
    for ours, theirs in zip(other.parameters(), network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
