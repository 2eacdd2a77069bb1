"""Official checkpoint files, well-formed, broken and hostile."""

import argparse
import pickle

import numpy as np
import pytest
import torch

from truepair.errors import TruepairError
from truepair.interop import load_published_checkpoint, matcher_from_published


def parts_of(arrays):
    return [
        {
            name.removeprefix(part): torch.tensor(value)
            for name, value in arrays.items()
            if name.startswith(part)
        }
        for part in ("img_enc.", "txt_enc.", "sim_enc.")
    ]


@pytest.fixture
def network(oracle):
    return parts_of(oracle("sgr"))


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def save(request, tmp_path):
    """Write a checkpoint in torch's present or its older format, give its path."""

    def write(content):
        path = tmp_path / "model_best.pth.tar"
        torch.save(content, path, _use_new_zipfile_serialization=request.param)
        return path

    return write


OPTIONS = argparse.Namespace(module_name="SGR", margin=0.2, bi_gru=True, data_name="f30k_precomp")


def test_one_network(save, network, oracle):
    content = {"epoch": 30, "model": network, "best_rsum": np.float64(471.2), "opt": OPTIONS, "Eiters": 9}
    checkpoint = load_published_checkpoint(save(content))
    assert (checkpoint.epoch, checkpoint.best_rsum, len(checkpoint.networks)) == (30, 471.2, 1)
    assert checkpoint.options["module_name"] == "SGR"
    matcher = matcher_from_published("sgr", checkpoint)
    images = matcher.encode_images(torch.tensor(oracle("sgr")["images"]))
    np.testing.assert_allclose(images.vectors.detach(), oracle("sgr")["img_global"], atol=1e-5)


def test_two_networks(save, network, oracle):
    content = {
        "epoch": 3,
        "model_A": network,
        "model_B": parts_of(oracle("saf")),
        "best_rsum": 1.0,
        "opt": OPTIONS,
    }
    checkpoint = load_published_checkpoint(save(content))
    assert len(checkpoint.networks) == 2
    assert "sim_enc.SAF_module.bn.weight" in checkpoint.networks[1]
    matcher_from_published("sgraf", checkpoint)


def test_two_parts(save, oracle):
    image, text, _ = parts_of(oracle("vse_infty"))
    wrapped = [{f"module.{name}": value for name, value in part.items()} for part in (image, text)]
    checkpoint = load_published_checkpoint(save({"model": wrapped, "opt": OPTIONS}))
    assert (checkpoint.epoch, checkpoint.best_rsum) == (None, None)
    assert set(checkpoint.networks[0]) == {f"img_enc.{k}" for k in image} | {f"txt_enc.{k}" for k in text}
    matcher_from_published("vse-infinity", checkpoint)


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


@pytest.mark.parametrize("place", ["opt", "model", "plain"])
def test_hostile_files_are_refused_and_nothing_runs(save, network, tmp_path, place):
    target = tmp_path / "executed"
    hostile = Hostile(target)
    if place == "plain":
        path = tmp_path / "model.pth.tar"
        path.write_bytes(pickle.dumps({"model": network, "opt": hostile}))
    else:
        path = save({"model": network, "opt": OPTIONS} | {place: hostile})
    with pytest.raises(TruepairError, match=f"{path.name}.*nothing was run|damaged or not a PyTorch file"):
        load_published_checkpoint(path)
    assert not target.exists()
    # The trap works: without the precaution the file appears.
    if place != "plain":
        torch.load(path, weights_only=False)["model"]
        assert target.exists()


def test_the_refusal_names_what_was_asked_for(save, network, tmp_path):
    with pytest.raises(TruepairError, match=r"asks to run \S*open"):
        load_published_checkpoint(save({"model": network, "opt": Hostile(tmp_path / "executed")}))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_truncated_files(save, network, share):
    path = save({"model": network, "opt": OPTIONS})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(TruepairError, match=f"{path.name}: it is damaged"):
        load_published_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all\n" * 40, bytes(range(256)) * 8])
def test_other_files(tmp_path, content):
    path = tmp_path / "model.pth.tar"
    path.write_bytes(content)
    with pytest.raises(TruepairError, match="damaged or not a PyTorch file"):
        load_published_checkpoint(path)


def test_no_file(tmp_path):
    with pytest.raises(TruepairError, match="there is no such file"):
        load_published_checkpoint(tmp_path / "absent.pth.tar")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.zeros(3), "holds a Tensor"),
        ({"state_dict": {}}, "no entry 'model'.*it has: state_dict"),
        ({"model": 5}, "not a list of two or three"),
        ({"model": [{"a": 1}, {}]}, "not a state dict of tensors"),
        ({"model": [{1: torch.zeros(2)}, {}]}, "not a state dict of tensors"),
        ({"model": [{}, {}], "opt": "SGR"}, "'opt' is a str"),
    ],
)
def test_other_contents(save, content, message):
    with pytest.raises(TruepairError, match=message):
        load_published_checkpoint(save(content))


def test_records_beside_the_weights_may_be_anything(save, network):
    content = {"model": network, "epoch": "thirty", "best_rsum": [471.2], "opt": None}
    checkpoint = load_published_checkpoint(save(content))
    assert (checkpoint.epoch, checkpoint.best_rsum, checkpoint.options) == (None, None, {})
    content |= {"epoch": torch.tensor(30), "best_rsum": torch.tensor(471.5), "opt": {"module_name": "SGR"}}
    checkpoint = load_published_checkpoint(save(content))
    assert (checkpoint.epoch, checkpoint.best_rsum) == (30, 471.5)
    assert checkpoint.options == {"module_name": "SGR"}
