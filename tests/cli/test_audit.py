"""truepair audit as people call it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from truepair.cli import main
from truepair.pairs.noise import caption_noise, write_noise
from truepair.pairs.readers import load_pairs


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]
    vectors = generator.normal(size=(len(words), 20))
    has = np.stack([generator.choice(len(words), 4, replace=False) for _ in range(300)])
    np.save(folder / "train_ims.npy", vectors[has].sum(1).astype(np.float32))
    lines = [" ".join(words[w] for w in generator.permutation(row)) for row in has for _ in range(2)]
    (folder / "train_caps.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_people_read_what_was_found_and_what_to_do_next(data, tmp_path, capsys):
    assert main(["audit", str(data), "--noise", "0.3", "--out", str(tmp_path / "a"), "--apply-rematch"]) == 0
    out = capsys.readouterr().out
    for part in (
        "estimated mismatched",
        "truly mismatched",
        "of these truly wrong",
        "report.html",
        "repaired",
    ):
        assert part in out
    assert f"truepair review {tmp_path / 'a'}" in out


def test_machines_get_the_summary(data, tmp_path, capsys):
    index = caption_noise(load_pairs(data).image_of, 0.4, 3)
    write_noise(tmp_path / "noise_0.4.npy", index)
    options = ["--noise", str(tmp_path / "noise_0.4.npy"), "--error-rate", "0.2", "--seed", "4", "--json"]
    assert main(["audit", str(data), "--out", str(tmp_path / "a"), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "a" / "summary.json").read_text())
    stored.pop("scores")
    assert printed == {"out": str(tmp_path / "a"), **stored}
    assert stored["error_rate"] == 0.2
    assert stored["seed"] == 4
    assert stored["data"]["noise"]["nominal"] == 0.4
    assert stored["truth"]["share"] == pytest.approx(0.4, abs=0.01)
    assert [len(source["sha256"]) for source in stored["data"]["sources"]] == [64, 64]


def test_review_can_follow_from_any_folder(data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(data.parent)
    assert main(["audit", data.name, "--noise", "0.3", "--out", str(tmp_path / "a"), "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)["kept"]
    monkeypatch.chdir(tmp_path)
    assert main(["review", "a", "--export", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == kept == len(load_pairs("mine"))


def test_mistakes_are_errors_for_people(data, tmp_path, capsys):
    assert main(["audit", str(tmp_path / "nothing"), "--out", str(tmp_path / "a")]) == 2
    assert "nothing at this path" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    assert main(["audit", str(data), "--out", str(data)]) == 2
    assert "something else" in capsys.readouterr().err


def test_a_quick_audit_does_not_wait_for_torch(data, tmp_path):
    code = (
        "import sys; from truepair.cli import main; "
        f"code = main(['audit', {str(data)!r}, '--out', {str(tmp_path / 'a')!r}, '--json']); "
        "print('slow' if 'torch' in sys.modules else 'light', code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("light 0\n")
