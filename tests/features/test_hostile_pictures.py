"""A folder as the web gives it, through embed and audit: every broken picture is named, every odd one is used."""

import importlib.util
import json
import os
from pathlib import Path

import polars as pl
import pytest

from truepair.cli import main
from truepair.features.embed import embed_source
from truepair.pairs.readers import load_pairs

TOOL = Path(__file__).parents[2] / "tools" / "make_hostile_pictures.py"


@pytest.fixture(scope="module")
def hostile():
    spec = importlib.util.spec_from_file_location("make_hostile_pictures", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(os.name != "posix", reason="named pipes and links")
def test_every_broken_picture_is_named_and_every_odd_one_used(hostile, tmp_path, capsys):
    folder, data = tmp_path / "web", tmp_path / "data"
    kinds = len(hostile.BROKEN), len(hostile.ODD)
    faults = hostile.make(folder, 150, *kinds)
    assert sorted(faults.values()) == sorted(hostile.BROKEN)
    summary = embed_source(folder, data, split="train", workers=1)
    # Names that are not UTF-8 are shown with a question mark.
    shown = {name.encode("utf-8", "replace").decode(): kind for name, kind in faults.items()}
    rejects = pl.read_parquet(data / "rejects.parquet")
    assert sorted(rejects["picture"]) == sorted(shown)
    reason = {shown[row["picture"]]: row["reason"] for row in rejects.rows(named=True)}
    assert reason["zero bytes"] == "empty file"
    assert reason["cut GIF"] == reason["cut WebP"] == reason["damaged header"] == "damaged"
    assert reason["cut JPEG"] == reason["cut PNG"] == "truncated"
    assert reason["bomb, header only"] == reason["bomb, whole"] == "too large"
    assert reason["folder"] == reason["link to a folder"] == reason["named pipe"] == "not a file"
    assert reason["name in Latin-1"] == "name is not UTF-8"
    assert reason["absent"] == reason["link to nothing"] == "missing file"
    assert len(load_pairs(data)) == 150 - len(faults)
    assert summary["notes"]["turned as the EXIF data says"] == 2
    assert summary["notes"]["animated or several pages, the first was taken"] == 3

    assert main(["audit", str(data), "--out", str(tmp_path / "audit"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 150 - len(faults)
    report = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    assert "data:image/webp;base64," in report
