"""What the README prints for a newcomer's own pictures works as it is printed."""

import io
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from truepair.cli import main
from truepair.pairs.readers import load_pairs

README = Path(__file__).parents[1] / "README.md"
COLOURS = {"red": (220, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 220), "black": (20, 20, 20)}
PLACES = {"left": (0, 0, 12, 24), "right": (12, 0, 24, 24), "top": (0, 0, 24, 12), "bottom": (0, 12, 24, 24)}


def commands():
    section = README.read_text(encoding="utf-8").split("## Your own pictures")[1].split("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    truepair")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A working folder with PICTURES: paper in two colours, some captions swapped, one file empty."""
    folder = tmp_path / "PICTURES"
    folder.mkdir()
    generator = np.random.default_rng(0)
    texts = []
    for number in range(150):
        (first, second), place = (
            generator.choice(list(COLOURS), 2, replace=False),
            generator.choice(list(PLACES)),
        )
        picture = Image.new("RGB", (24, 24), COLOURS[second])
        picture.paste(COLOURS[first], PLACES[place])
        picture.save(folder / f"{number}.png")
        texts.append(f"{first} at the {place} of {second} paper")
    texts[:15] = texts[1:15] + texts[:1]
    rows = [f"{number}.png,{text}" for number, text in enumerate(texts)]
    (folder / "captions.csv").write_text("path,text\n" + "\n".join(rows) + "\n")
    (folder / "149.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_your_own_pictures(newcomer, monkeypatch, capsys):
    verbs = [words[0] for words in commands()]
    assert verbs == ["embed", "inspect", "audit", "review", "review", "train", "evaluate"]
    for words in commands():
        monkeypatch.setattr(sys, "stdin", io.StringIO("d\nk\nq\n"))
        assert main(words) == 0, (words, capsys.readouterr().err)
    said = capsys.readouterr().out
    assert "empty file" in said
    assert "estimated mismatched" in said
    assert (newcomer / "AUDIT" / "report.html").exists()
    assert len(load_pairs(newcomer / "CLEAN")) <= len(load_pairs(newcomer / "DATA"))
    assert (newcomer / "runs" / "first" / "ledger.parquet").exists()
