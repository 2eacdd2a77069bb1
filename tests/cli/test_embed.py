import json

import polars as pl
import pytest
from PIL import Image

from truepair.cli import main


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for k in range(12):
        Image.new("RGB", (20, 10), (20 * k, 255 - 20 * k, 99)).save(folder / f"{k}.png")
    (folder / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    names = [*(f"{k}.png" for k in range(12)), "cut.png"]
    pl.DataFrame({"image": names, "alt": ["a plain colour"] * 13}).write_csv(folder / "list.csv")
    return folder


def embed(source, out, *words):
    return main(["embed", str(source), "--out", str(out), "--text-column", "alt", "--workers", "1", *words])


def test_json_summary(source, tmp_path, capsys):
    shares = ["--shares", "train=0.5,test=0.5"]
    assert embed(source, tmp_path / "data", "--json", *shares) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["out"] == str(tmp_path / "data")
    assert sum(split["pairs"] for split in summary["splits"].values()) == 12
    assert sum(summary["rejects"].values()) == 1
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest == {name: value for name, value in summary.items() if name != "out"}


def test_people_read_what_became_of_their_pictures(source, tmp_path, capsys):
    assert embed(source, tmp_path / "data", "--split", "train") == 0
    shown = capsys.readouterr().out
    for words in ("train", "12", "set aside", "rejects.parquet", "truepair inspect"):
        assert words in shown
    assert main(["inspect", str(tmp_path / "data")]) == 0


def test_splits_that_got_no_picture_are_named(source, tmp_path, capsys):
    assert embed(source, tmp_path / "data", "--shares", "train=0.99999,dev=0.00001,test=0") == 0
    assert "none came to dev. Larger --shares" in capsys.readouterr().out
    assert embed(source, tmp_path / "all", "--split", "train") == 0
    assert "none came to" not in capsys.readouterr().out


def test_errors_are_for_people(source, tmp_path, capsys):
    assert embed(source, tmp_path / "data", "--shares", "train=0.9") == 2
    assert "the sum must be 1" in capsys.readouterr().err
    assert embed(source, tmp_path / "data", "--extractor", "resnet") == 2
    assert "patches, and hf:" in capsys.readouterr().err
    assert main(["embed", str(source), "--out", str(tmp_path / "data")]) == 2
    assert "--text-column" in capsys.readouterr().err
