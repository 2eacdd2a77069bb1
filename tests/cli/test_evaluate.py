"""truepair evaluate --two-stage; tests/cli/test_train.py has the exact results."""

import json

import pytest

from truepair.cli import main
from truepair.evaluation.calibration import SHARES
from truepair.training import checkpoints
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


def test_two_stages(evaluate):
    result = evaluate("--two-stage", "--loss=30")
    assert result["mode"] == "two-stage"
    stages = result["two_stage"]
    measured = stages["calibration"]
    assert (measured["bound"], measured["images"]) == (30, 12)
    assert measured["share"] in SHARES
    assert measured["lost"] - measured["gained"] <= 30
    assert measured["size"] == [stages["images_per_text"], stages["texts_per_image"]]
    assert stages["scored"] < 1
    assert len(result["networks"]) == 2


def test_lists_of_everything_are_exact_and_what_was_measured_is_used_again(evaluate, run):
    first = evaluate("--two-stage", "--loss=20")
    path = run.folder / "two_stage.safetensors"
    kept = checkpoints.read(path)
    kept.facts["calibration"] |= {"share": 1.0, "size": [12, 60]}
    checkpoints.write(path, kept)
    again, exact = evaluate("--two-stage", "--loss=20"), evaluate()
    assert again["two_stage"]["scored"] == 1
    assert again["two_stage"]["first_stage"] == first["two_stage"]["first_stage"]
    assert again["ensemble"]["rsum"] == pytest.approx(exact["ensemble"]["rsum"])
    # Another bound is another measurement.
    assert evaluate("--two-stage", "--loss=25")["two_stage"]["calibration"]["bound"] == 25
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
