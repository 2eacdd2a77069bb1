"""truepair evaluate --two-stage; tests/cli/test_train.py has the exact results."""

import json

import pytest

from truepair.cli import main
from truepair.evaluation.calibration import SHARES
from truepair.training.run import Run


@pytest.fixture(scope="module")
def run(tiny_data, tmp_path_factory) -> Run:
    """A run of two networks."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    sizes = ["--sgr.embedding=16", "--sgr.word-width=8", "--sgr.similarity=8", "--schedule.batch-size=50"]
    schedule = ["--schedule.warmup=1", "--schedule.pieces=1"]
    command = ["train", str(tiny_data), f"--out={folder}", "--matcher=sgr", "--method=ncr", "--json"]
    assert main([*command, *sizes, *schedule]) == 0
    return Run(folder)


@pytest.fixture
def evaluate(run, capsys):
    def measured(*options):
        assert main(["evaluate", str(run.folder), "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return measured


def test_exact_unless_asked(evaluate):
    result = evaluate()
    assert result["mode"] == "exact"
    assert "two_stage" not in result


def test_two_stages_on_the_split_they_were_measured_on(evaluate, run):
    exact, result = evaluate("--split=dev"), evaluate("--split=dev", "--two-stage", "--loss=30")
    assert result["mode"] == "two-stage"
    stages = result["two_stage"]
    measured = stages["calibration"]
    assert (measured["bound"], measured["allowed"]) == (30, 15)
    assert measured["share"] in SHARES
    assert measured["size"] == [stages["images_per_text"], stages["texts_per_image"]]
    assert stages["scored"] < 1
    # Both networks and the ensemble are within the bound, and the worst of them is what is told.
    changes = [
        two["rsum"] - one["rsum"]
        for one, two in zip(
            [*exact["networks"], exact["ensemble"]], [*result["networks"], result["ensemble"]], strict=True
        )
    ]
    assert max(map(abs, changes)) <= 15
    assert any(change == pytest.approx(measured["gained"] - measured["lost"]) for change in changes)


def test_nothing_may_be_lost(evaluate):
    exact, result = evaluate("--split=dev"), evaluate("--split=dev", "--two-stage", "--loss=0")
    assert result["two_stage"]["calibration"]["lost"] == 0
    assert result["ensemble"]["rsum"] == pytest.approx(exact["ensemble"]["rsum"])


def test_what_was_measured_is_kept_and_used_again(evaluate, run):
    first = evaluate("--two-stage", "--loss=20")
    path = run.folder / "two_stage.json"
    kept = json.loads(path.read_text())
    kept["calibration"]["share"], kept["calibration"]["size"] = 1.0, [12, 60]
    path.write_text(json.dumps(kept))
    again = evaluate("--two-stage", "--loss=20")
    assert again["two_stage"]["scored"] == 1
    assert again["ensemble"]["rsum"] == pytest.approx(evaluate()["ensemble"]["rsum"])
    # Another bound is another measurement.
    other = evaluate("--two-stage", "--loss=25")
    assert other["two_stage"]["calibration"]["bound"] == 25
    assert evaluate("--two-stage", "--loss=20")["two_stage"] == first["two_stage"]


def test_people_see_what_was_left_out(run, capsys):
    assert main(["evaluate", str(run.folder), "--two-stage", "--loss=20"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "two-stage" in out
    assert "of the pairs scored" in out
    assert "bound 20" in out


def test_a_loss_below_nothing_is_refused(run, capsys):
    assert main(["evaluate", str(run.folder), "--two-stage", "--loss=-1"]) == 2
    assert "cannot be less than nothing" in capsys.readouterr().err
