"""The demo on a handful of pairs: what it writes, what it says, and that it goes on where it was stopped."""

import json
from dataclasses import replace

import pytest

from truepair import demo as showing
from truepair.cli import main


@pytest.fixture
def tiny_demo(tiny_data, monkeypatch):
    short = replace(showing.preset("plain", "demo"), pieces=(1,))
    monkeypatch.setattr(showing, "demo_data", lambda: tiny_data)
    monkeypatch.setattr(showing, "preset", lambda method, name: short)


def test_the_demo_says_what_was_found_and_what_comes_next(tiny_demo, tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    for words in (
        "truly it is 39.0%",
        "plain",
        "robust",
        "ceiling",
        "robust model",
        "truly wrong",
        "truepair embed PICTURES",
    ):
        assert words in said
    report = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    for words in ("Retrieval of new drawings", "Wrong pairs found", "Losses: robust"):
        assert words in report

    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "demo").glob("*/metrics.jsonl")}
    assert len(stamps) == 3
    assert main(["demo", "--out", str(tmp_path / "demo"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}  # nothing was trained again
    assert set(found["rsum"]) == {"plain", "robust", "ceiling"}
    assert [(find["judge"], find["rate"]) for find in found["found"]] == [
        ("data alone", 0.05),
        ("data alone", 0.5),
        ("robust model", 0.05),
        ("robust model", 0.5),
    ]
    assert found["true_share"] == pytest.approx(0.4, abs=0.02)
