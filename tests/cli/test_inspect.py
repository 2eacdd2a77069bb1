"""The verb as people use it: in a process of its own and, where that is enough, in this one."""

import json
import subprocess
import sys

import numpy as np
import pytest

from truepair.cli import main
from truepair.pairs.noise import image_noise, write_noise

IMAGES, PER_IMAGE = 8, 5


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for seed, split in enumerate(("train", "dev", "test")):
        generator = np.random.default_rng(seed)
        np.save(folder / f"{split}_ims.npy", generator.normal(size=(IMAGES, 3, 4)).astype(np.float16))
        texts = [f"a dog number {row % 7} runs ." for row in range(IMAGES * PER_IMAGE)]
        (folder / f"{split}_caps.txt").write_text("\n".join(texts) + "\n")
    return folder


def truncate(data):
    path = data / "dev_ims.npy"
    path.write_bytes(path.read_bytes()[:-30])
    return ["dev_ims.npy", "row 6", "truncated", "again"]


def put_nan(data):
    array = np.load(data / "dev_ims.npy")
    array[5, 1, 1] = np.nan
    np.save(data / "dev_ims.npy", array)
    return ["dev_ims.npy", "row 5", "nan", "remove it"]


def drop_caption(data):
    path = data / "dev_caps.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    return ["dev_caps.txt", "line 39", "8 images", "add what is missing"]


def write_latin_1(data):
    path = data / "dev_caps.txt"
    path.write_bytes(path.read_bytes().replace(b"number 3", b"num\xe9ro 3", 1))
    return ["dev_caps.txt", "line 4", "not UTF-8", "iconv"]


def empty_caption(data):
    path = data / "dev_caps.txt"
    lines = path.read_text().split("\n")
    lines[10] = ""
    path.write_text("\n".join(lines))
    return ["dev_caps.txt", "line 11", "empty", "--skip-empty"]


DAMAGES = [truncate, put_nan, drop_caption, write_latin_1, empty_caption]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_with_file_row_and_remedy(data, damage, capsys):
    expected = damage(data)
    assert main(["inspect", str(data)]) == 2
    captured = capsys.readouterr()
    for part in expected:
        assert part in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert main(["inspect", str(data), "--split", "train"]) == 0


def test_a_process_says_the_same_and_exits_with_2(data):
    parts = empty_caption(data)
    done = subprocess.run(
        [sys.executable, "-m", "truepair", "inspect", str(data)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert all(part in done.stderr for part in parts)
    assert "Traceback" not in done.stderr


def test_people_see_every_split(data, capsys):
    assert main(["inspect", str(data), "--noise", "0.5"]) == 0
    out = capsys.readouterr().out
    header = out.split("\n")[2].split()
    assert header == ["train", "dev", "test"]
    for part in ("8 x 3 x 4 float16", "vocabulary size", "duplicates", "caption", "0.5"):
        assert part in out


def inspected(capsys, *arguments):
    assert main(["inspect", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["splits"]


def test_machines_get_json(data, capsys):
    splits = inspected(capsys, data)
    assert list(splits) == ["train", "dev", "test"]
    train = splits["train"]
    assert train["pairs"] == 40
    assert train["feature_shape"] == [8, 3, 4]
    assert train["feature_dtype"] == "float16"
    assert train["texts"]["repeated_pairs"] == 40
    assert train["texts"]["vocabulary"] == 4 + 5 + 7
    assert train["noise"]["protocol"] == "none"
    assert [len(source["sha256"]) for source in train["sources"]] == [64, 64]


def test_noise_goes_into_the_training_split_or_the_named_one(data, capsys):
    splits = inspected(capsys, data, "--noise", "0.5", "--noise-seed", "7")
    assert splits["train"]["noise"]["nominal"] == 0.5
    assert splits["train"]["noise"]["seed"] == 7
    assert 0 < splits["train"]["noise"]["measured"] <= 0.5
    assert splits["dev"]["noise"]["protocol"] == "none"
    splits = inspected(capsys, data, "--noise", "0.5", "--split", "dev", "--noise-protocol", "image")
    assert list(splits) == ["dev"]
    assert splits["dev"]["noise"]["protocol"] == "image"


def test_a_noise_file_is_recognised(data, tmp_path, capsys):
    index = image_noise(IMAGES, 0.5, 1)
    write_noise(tmp_path / "noise_inx_0.5.npy", index)
    noise = inspected(capsys, data, "--noise", tmp_path / "noise_inx_0.5.npy")["train"]["noise"]
    assert noise["protocol"] == "image"
    assert noise["nominal"] == 0.5
    assert noise["measured"] == np.mean(index != np.arange(IMAGES))
    assert len(noise["sha256"]) == 64


def test_a_noise_file_of_other_data_is_refused(data, tmp_path, capsys):
    write_noise(tmp_path / "noise.npy", image_noise(29_000, 0.5, 1))
    assert main(["inspect", str(data), "--noise", str(tmp_path / "noise.npy")]) == 2
    error = capsys.readouterr().err
    assert "29,000 entries" in error
    assert "40 captions and 8 images" in error


def test_noise_needs_a_split_to_go_into(data, capsys):
    for path in data.glob("train*"):
        path.unlink()
    assert main(["inspect", str(data), "--noise", "0.5"]) == 2
    assert "--split" in capsys.readouterr().err


def test_empty_captions_can_be_set_aside(data, capsys):
    empty_caption(data)
    assert inspected(capsys, data, "--skip-empty")["dev"]["set_aside"] == 1


def test_nothing_there_is_an_error_for_people(tmp_path, capsys):
    assert main(["inspect", str(tmp_path / "nothing")]) == 2
    assert "nothing at this path" in capsys.readouterr().err


def test_looking_at_data_does_not_wait_for_torch(data):
    code = (
        "import sys; from truepair.cli import main; "
        f"code = main(['inspect', {str(data)!r}]); "
        "print('slow' if 'torch' in sys.modules else 'light', code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("light 0\n")
