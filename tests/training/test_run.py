import json

import polars as pl
import pytest

from truepair.errors import DataError
from truepair.training.run import Run, versions, write_text


@pytest.fixture
def run(tmp_path) -> Run:
    write_text(tmp_path / "run" / "config.json", json.dumps({"config": {}}))
    return Run(tmp_path / "run")


def test_a_folder_without_config_is_no_run(tmp_path):
    with pytest.raises(DataError, match=r"not a run.*config\.json"):
        _ = Run(tmp_path).config


def test_metrics_are_kept_line_by_line(run):
    assert run.metrics == []
    for epoch in range(3):
        run.append_metrics({"epoch": epoch, "loss": [0.1 + 0.2]})
    assert [entry["epoch"] for entry in run.metrics] == [0, 1, 2]
    run.keep_metrics(2)
    assert [entry["epoch"] for entry in run.metrics] == [0, 1]
    run.keep_metrics(0)
    assert run.metrics == []


def test_a_line_that_is_being_written_is_none_yet(run):
    run.append_metrics({"epoch": 0})
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "lo')
    assert run.metrics == [{"epoch": 0}]
    run.keep_metrics(1)
    run.append_metrics({"epoch": 1})
    assert [entry["epoch"] for entry in run.metrics] == [0, 1]


def test_a_run_is_finished_when_its_ledger_is_there(run):
    assert not run.finished
    with pytest.raises(DataError, match=r"has not ended.*--resume"):
        run.ledger()
    run.write_ledger(pl.DataFrame({"pair_id": ["a"]}))
    assert run.finished
    assert run.ledger()["pair_id"].to_list() == ["a"]


def test_tidying_removes_half_written_files_only(run):
    for name in (".metrics.jsonl.abc", "checkpoints/.last.safetensors.abc", "beliefs/.0001.safetensors.abc"):
        (run.folder / name).parent.mkdir(exist_ok=True)
        (run.folder / name).write_text("half")
    (run.folder / "checkpoints" / "last.safetensors").write_text("whole")
    run.tidy()
    left = sorted(path.name for path in run.folder.rglob("*") if path.is_file())
    assert left == ["config.json", "last.safetensors"]


def test_versions_are_plain_text():
    assert {"truepair", "torch", "numpy", "python"} <= versions().keys()
    assert json.dumps(versions())
