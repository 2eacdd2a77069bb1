import subprocess
import sys

import pytest

import truepair
from truepair import load_pairs
from truepair.errors import DataError
from truepair.pairs.noise import Noise


def test_a_path_without_a_data_set_says_what_is_needed(tmp_path):
    with pytest.raises(DataError, match=r"train_ims\.npy.*images\.npy.*pairs\.parquet"):
        load_pairs(tmp_path)
    with pytest.raises(DataError, match="nothing at this path"):
        load_pairs(tmp_path / "nothing")


def test_noise_may_be_a_ratio_an_order_or_a_file(precomputed, tmp_path):
    folder = precomputed(images=20)
    by_ratio = load_pairs(folder, noise=0.5, noise_seed=7)
    by_order = load_pairs(folder, noise=Noise(0.5, seed=7))
    assert by_ratio.image_of.tolist() == by_order.image_of.tolist()
    assert by_ratio.provenance.noise == by_order.provenance.noise
    images = load_pairs(folder, noise=0.5, noise_protocol="image")
    assert images.provenance.noise.protocol == "image"
    assert load_pairs(folder, noise=0).provenance.noise.measured == 0


def test_importing_truepair_does_not_import_torch():
    code = "import sys, truepair; truepair.load_pairs; assert not {'torch', 'polars'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = truepair.nothing
    assert "load_pairs" in truepair.__all__
