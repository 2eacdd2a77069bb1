import json

import pytest

from truepair.errors import TruepairError
from truepair.training import tracking
from truepair.training.fit import fit
from truepair.training.tracking import scalars


def test_numbers_go_by_their_paths():
    entry = {"a": 1, "b": {"c": [0.5, {"d": None}], "e": "text"}, "f": True}
    assert dict(scalars(entry)) == {"a": 1.0, "b/c/0": 0.5, "f": 1.0}


def test_events_hold_what_the_metrics_hold(tiny_data, tmp_path, quick):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = fit(tiny_data, "plain", out=tmp_path / "run", noise=0.2, tensorboard=True, **quick())
    # Epochs have a file each: read them all in order, as TensorBoard itself does.
    found: dict[str, dict[int, float]] = {}
    for path in sorted((run.folder / "tensorboard").iterdir()):
        events = accumulator.EventAccumulator(str(path)).Reload()
        for name in events.Tags()["scalars"]:
            for event in events.Scalars(name):
                found.setdefault(name, {})[event.step] = event.value
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    for line in lines:
        expected = dict(scalars({key: value for key, value in line.items() if key != "epoch"}))
        assert expected.keys() <= found.keys()
        for name, value in expected.items():
            assert found[name][line["epoch"]] == pytest.approx(value, rel=1e-6)


def test_without_tensorboard_nothing_begins(tiny_data, tmp_path, quick, monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(TruepairError, match=r"truepair\[track\]"):
        fit(tiny_data, "plain", out=tmp_path / "run", tensorboard=True, **quick())
    assert not (tmp_path / "run").exists()
