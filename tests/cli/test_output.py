import json
from pathlib import Path

import numpy as np

from truepair.cli.output import emit, words


def test_machines_get_the_values_as_they_are(capsys):
    emit({"share": 0.25, "name": "é"}, as_json=True, shown="for people")
    assert json.loads(capsys.readouterr().out) == {"share": 0.25, "name": "é"}


def test_json_is_always_json(capsys):
    values = {"nan": float("nan"), "rows": (np.int64(3), np.float32(0.5)), "path": Path("a"), "on": True}
    emit({**values, "array": np.array([1.0, np.inf])}, as_json=True)
    expected = {"nan": None, "rows": [3, 0.5], "path": "a", "on": True, "array": [1.0, None]}
    assert json.loads(capsys.readouterr().out) == expected


def test_people_get_a_table(capsys):
    emit({"pairs_kept": 12345, "share": None}, as_json=False)
    lines = capsys.readouterr().out.split("\n")
    assert any("pairs kept" in line and "12,345" in line for line in lines)
    assert any("share" in line and "unknown" in line for line in lines)


def test_records_are_rows(capsys):
    emit([{"name": "a", "value": 1}, {"name": "b", "other": True}], as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.strip().split("\n")]
    assert lines[0] == ["name", "value", "other"]
    assert lines[1:] == [["a", "1"], ["b", "yes"]]


def test_people_may_get_something_else(capsys):
    emit({"a": 1}, as_json=False, shown="[not markup-safe] text")
    assert "text" in capsys.readouterr().out


def test_nothing_is_cut_in_a_pipe(capsys):
    emit({"sha256": "0" * 64, "path": "x" * 90}, as_json=False)
    assert "x" * 90 in capsys.readouterr().out


def test_words():
    assert words(1234567) == "1,234,567"
    assert words(0.39994) == "0.3999"
    assert words(False) == "no"
    assert words([1, None]) == "1, unknown"
