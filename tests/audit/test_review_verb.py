"""The review as people do it: keys through a pipe, and through a real terminal where there is one."""

import io
import json
import os
import sys
import time

import polars as pl
import pytest

from truepair.audit.review import read_decisions
from truepair.cli import main
from truepair.pairs.readers import load_pairs


@pytest.fixture
def press(monkeypatch, capsys):
    def press(folder, keys, *options):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(keys) + "\n"))
        assert main(["review", str(folder), *options]) == 0
        return capsys.readouterr().out

    return press


def verdicts(folder):
    return {name: found.decision for name, found in read_decisions(folder / "decisions.jsonl").items()}


def test_keys_decide_strongest_first_and_the_next_session_goes_on(make_audit, press):
    folder = make_audit(12, 6)
    out = press(folder, ["k", "d", "s", "q"], "--reviewer", "Ada")
    assert verdicts(folder) == {"train-0": "keep", "train-1": "drop"}
    assert "1 of 6" in out
    assert "50.0%" in out
    found = read_decisions(folder / "decisions.jsonl")["train-0"]
    assert (found.reviewer, found.order) == ("Ada", "strongest")
    assert found.time.endswith("+00:00")
    press(folder, ["r", "q"])
    assert verdicts(folder)["train-2"] == "rematch"
    assert read_decisions(folder / "decisions.jsonl")["train-2"].image_id == 'im"1<b>'


def test_back_decides_again_within_and_across_sessions(make_audit, press):
    folder = make_audit(12, 6)
    press(folder, ["k", "k", "b", "d", "q"])
    assert verdicts(folder) == {"train-0": "keep", "train-1": "drop"}
    press(folder, ["b", "r", "d", "q"])
    assert verdicts(folder) == {"train-0": "keep", "train-1": "rematch", "train-2": "drop"}


def test_without_a_proposal_there_is_no_rematch(make_audit, press):
    folder = make_audit(12, 6)
    out = press(folder, ["d", "d", "d", "r", "d", "?", "q"])
    assert "no proposal" in out
    assert "true pair" in out  # the unknown key explains the keys
    assert verdicts(folder)["train-3"] == "drop"


def test_the_end_of_the_keys_ends_the_session(make_audit, press):
    folder = make_audit(12, 6)
    assert "last one" in press(folder, ["d"] * 6)
    assert "All flagged pairs are decided" in press(folder, ["d"])
    assert len(verdicts(folder)) == 6


def test_hostile_captions_do_not_command_the_terminal(make_audit, press):
    out = press(make_audit(12, 6), ["s"] * 6)
    assert "\x1b" not in out
    assert "[bold red]markup[/]" in out


def test_zero_suspects(make_audit, press):
    assert "nothing to review" in press(make_audit(12, 0), ["k"])


def test_pairs_that_were_not_flagged_can_be_reviewed_too(make_audit, press):
    folder = make_audit(12, 1)
    table = pl.read_parquet(folder / "suspects.parquet")
    unsure = pl.Series([0.95, *[0.41 + 0.01 * row for row in range(1, 6)], *[0.2] * 6])
    table.with_columns(mismatch_probability=unsure).write_parquet(folder / "suspects.parquet")
    press(folder, ["d", "d", "k", "k", "q"], "--unflagged")
    assert verdicts(folder) == {"train-0": "drop", "train-5": "drop", "train-4": "keep", "train-3": "keep"}
    found = json.loads(press(folder, [], "--status", "--json"))
    assert (found["reviewed"], found["not_flagged_but_decided"]) == (1, 3)
    assert found["wrong_among_not_flagged"]["share"] == pytest.approx(1 / 3)
    assert found["precision"]["pairs"] == 1
    assert "not flagged" in press(folder, [], "--status")
    assert "That was the last one" in press(folder, ["k", "d"], "--unflagged")


def test_the_random_order_shows_every_suspect_once(make_audit, press):
    folder = make_audit(12, 6)
    press(folder, ["d"] * 6, "--order", "random", "--seed", "3")
    assert sorted(verdicts(folder)) == [f"train-{row}" for row in range(6)]
    assert list(verdicts(folder)) != [f"train-{row}" for row in range(6)]


def test_the_random_order_does_not_leave_out_what_came_up_as_the_strongest(make_audit, press):
    folder = make_audit(12, 6)
    press(folder, ["d", "d", "q"])
    press(folder, ["k"] * 6, "--order", "random")
    assert set(verdicts(folder).values()) == {"keep"}
    found = json.loads(press(folder, [], "--status", "--json"))
    assert found["precision_of_random"]["pairs"] == 6
    assert "All flagged pairs are decided" in press(folder, ["d"], "--order", "random")


def test_a_page_shows_the_pair_that_is_asked_about(make_audit, press, monkeypatch):
    folder = make_audit(12, 6)
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    out = press(folder, ["s", "s", "s", "s", "o", "q"])
    page = (folder / "review.html").resolve()
    assert opened == [page.as_uri()]
    assert page.as_uri() in out
    text = page.read_text(encoding="utf-8")
    assert "train-4" in text
    assert "train-3" not in text
    assert text.count("data:image/webp;base64,") == 2  # its picture and the proposed one
    assert '<meta http-equiv="refresh" content="1">' in text
    assert "<script" not in text


def test_status_for_machines(make_audit, press):
    folder = make_audit(12, 6)
    press(folder, ["d", "d", "d", "k", "q"])
    found = json.loads(press(folder, [], "--status", "--json"))
    assert found["precision"]["share"] == 0.75
    assert found["precision"]["interval"] == pytest.approx([0.3006, 0.9544], abs=1e-4)
    assert found["remaining"] == 2


def test_export_applies_the_decisions(make_audit, press, tmp_path):
    folder = make_audit(12, 6)
    press(folder, ["k", "d", "r", "q"])
    found = json.loads(press(folder, [], "--export", str(tmp_path / "mine"), "--json"))
    assert found["pairs"] == 8
    pairs = load_pairs(tmp_path / "mine")
    images = {name: pairs.image_ids[image] for name, image in zip(pairs.ids, pairs.image_of, strict=True)}
    assert images["train-0"] == 'im"0<b>'
    assert images["train-2"] == 'im"1<b>'
    assert set(images) == {"train-0", "train-2", *(f"train-{row}" for row in range(6, 12))}


def test_not_an_audit_is_an_error_for_people(tmp_path, capsys):
    assert main(["review", str(tmp_path)]) == 2
    assert "not a finished audit" in capsys.readouterr().err


def test_in_a_terminal_single_keys_are_enough(make_audit):
    pty = pytest.importorskip("pty")
    folder = make_audit(12, 6)
    child, terminal = pty.fork()
    if child == 0:  # the reviewer's process
        os.execv(sys.executable, [sys.executable, "-m", "truepair", "review", str(folder)])
    shown = b""
    for key in (b"k", b"d", b"q"):
        before = shown.count(b"[q] quit")
        deadline = time.monotonic() + 20
        while shown.count(b"[q] quit") == before and time.monotonic() < deadline:
            shown += os.read(terminal, 65536)
        os.write(terminal, key)
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:  # the child has closed its side
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert verdicts(folder) == {"train-0": "keep", "train-1": "drop"}
    assert b"50.0%" in shown
