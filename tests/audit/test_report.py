"""The report is one well-formed page that asks the network for nothing and runs nothing, whatever captions say."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from truepair.audit.folder import read_audit
from truepair.audit.gallery import Example, Item, anchor, marked
from truepair.audit.report import Limits, Table, write_report
from truepair.training.run import Run

VOID = {"meta", "img", "link", "br", "hr", "input"}


class Page(HTMLParser):
    """Every element of a page, with proof that each one that opens is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.ids, self.words, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute of {tag} is there twice"
        self.elements.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def checked(path):
    """The page, after the checks that hold for every report."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "link", "form", "base", "audio", "video"}
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            if name in attributes:
                assert attributes[name].startswith(("data:image/webp;base64,", "#")), (tag, attributes[name])
        assert "url(" not in attributes.get("style", "")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style
    assert len(page.ids) == len(set(page.ids))
    targets = [attributes["href"][1:] for attributes in page.of("a")]
    assert set(targets) <= set(page.ids)
    assert all("alt" in attributes for attributes in page.of("img"))
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in page.of("svg"))
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert (np.diff(headings) <= 1).all()
    return page


def report(audit, tmp_path, **options):
    return write_report(tmp_path / "report.html", audit.suspects, audit.summary, **options)


@pytest.mark.parametrize("pictures", [True, False])
@pytest.mark.parametrize("truth", [True, False])
def test_hostile_captions_stay_text(make_audit, tmp_path, pictures, truth):
    audit = read_audit(make_audit(12, 6, pictures=pictures, truth=truth))
    page = checked(report(audit, tmp_path))
    assert (
        '< script (unsupported) >alert("x")</ script (unsupported) > a dog (unsupported) & a cat' in page.text
    )
    assert "{{ 7 * 7 }} {% raw %}" in page.text
    assert '</style></title><img src="http://evil.example/x.png" onerror=alert(1)>' in page.text
    assert bool(page.of("img")) is pictures
    assert ("Against the truth" in page.text) is truth
    assert ("in truth" in page.text) is truth


def test_pictures_that_cannot_be_shown_say_why(make_audit, tmp_path):
    page = checked(report(read_audit(make_audit(12, 6)), tmp_path))
    assert "missing file" in page.text
    assert "the file is a web page" in page.text
    assert all(int(image["width"]) <= 160 for image in page.of("img"))


def test_every_suspect_can_be_pointed_at(make_audit, tmp_path):
    audit = read_audit(make_audit(12, 6))
    page = checked(report(audit, tmp_path, limits=Limits(suspects=5, opened=2)))
    assert [anchor(f"train-{row}") in page.ids for row in range(7)] == [True] * 5 + [False] * 2
    assert "3 more" in page.text


def test_a_structured_share_warns(make_audit, tmp_path):
    audit = read_audit(make_audit())
    assert "Careful. The mismatches are <not> random." in checked(report(audit, tmp_path)).text
    summary = audit.summary | {"diagnostic": {"kind": "random", "says": "fine"}}
    assert "Careful" not in checked(write_report(tmp_path / "r.html", audit.suspects, summary)).text


def test_words_in_tables_stand_left_and_numbers_right(make_audit, tmp_path):
    table = Table(
        "T", "says", ["model", "how", "rSum"], [["plain", "as it is", "12.5"], ["none", "at all", "-"]]
    )
    page = checked(report(read_audit(make_audit()), tmp_path, tables=[table]))
    cells = [attributes.get("class") for attributes in page.of("td")][:4]
    assert cells == ["words", None, "words", None]


def test_zero_suspects(make_audit, tmp_path):
    page = checked(report(read_audit(make_audit(12, 0)), tmp_path))
    assert "No pair is flagged" in page.text


def test_pairs_that_are_not_flagged_fill_an_empty_gallery(make_audit, tmp_path):
    audit = read_audit(make_audit(12, 0))
    unsure = audit.suspects.with_columns(
        mismatch_probability=pl.Series([0.41 + 0.03 * row for row in range(6)] + [0.39] * 6)
    )
    page = checked(write_report(tmp_path / "r.html", unsure, audit.summary | {"estimated_share": 0.4}))
    assert "Not certain enough to be flagged" in page.text
    # More suspect than a pair drawn blindly, the most suspect first.
    shown = [name for name in page.ids if name.startswith("pair-")]
    assert shown == [anchor(f"train-{row}") for row in range(5, -1, -1)]
    assert "Not certain enough" not in checked(report(audit, tmp_path)).text


def test_other_error_rates_are_shown(make_audit, tmp_path):
    audit = read_audit(make_audit(12, 6))
    summary = audit.summary | {"diagnostic": {"kind": "random", "says": "fine"}}
    page = checked(write_report(tmp_path / "r.html", audit.suspects, summary))
    assert page.text.count("50 %") >= 1
    row = page.text.split("At other error rates")[1].split("50 %")[1].split()
    assert row[0] == "6"


def test_a_run_that_has_learnt_its_pairs_is_not_taken_apart(make_audit, tmp_path):
    audit = read_audit(make_audit())
    assert "taken apart" in checked(report(audit, tmp_path)).text
    page = checked(write_report(tmp_path / "r.html", audit.suspects, audit.summary | {"kind": "run"}))
    assert "taken apart" not in page.text
    assert "It was trained on the given pairs" in page.text


def test_searches_and_tables(make_audit, tmp_path):
    audit = read_audit(make_audit())
    pictures = audit.suspects["picture"].to_list()
    examples = [
        Example(
            Item("im0", picture=pictures[0]), [Item("t", text="<b>found</b>", score=0.5, note="its own")]
        ),
        Example(
            Item("t0", text="<i>asked</i>"),
            [Item("im4", picture=pictures[4]), Item("im1", picture=pictures[1])],
        ),
    ]
    table = Table("A <table>", "says & more", ["", "rSum"], [["plain <", "12.5"]])
    page = checked(report(audit, tmp_path, examples=examples, tables=[table]))
    for words in ("<b>found</b>", "its own", "<i>asked</i>", "A <table>", "says & more", "plain <"):
        assert words in page.text


def test_the_page_stays_small(make_audit, tmp_path):
    audit = read_audit(make_audit(2000, 2000, pictures=False))
    path = report(audit, tmp_path)
    checked(path)
    assert path.stat().st_size < 200_000


def test_too_many_pictures_are_left_out(make_audit, tmp_path):
    page = checked(report(read_audit(make_audit(12, 6)), tmp_path, limits=Limits(pictures=3)))
    shown = {image["src"] for image in page.of("img")}
    assert len(shown) <= 3
    assert "keep the page small" in page.text


def test_a_run_adds_losses_and_training_curves(make_audit, tmp_path):
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    (run.folder / "config.json").write_text(json.dumps({"config": {"method": "</pre>ncr"}}))
    for epoch in range(3):
        run.append_metrics({"loss": [1.0 / (epoch + 1)], "validation": {"ensemble": {"rsum": 100.0 + epoch}}})
    generator = np.random.default_rng(0)
    losses = np.concatenate([generator.normal(0.2, 0.05, 300), generator.normal(1.0, 0.1, 200)])
    run.write_ledger(pl.DataFrame({"loss": losses}))
    page = checked(report(read_audit(make_audit()), tmp_path, runs={"robust": run, "again": run}))
    for words in (
        "Losses: robust",
        "Losses: again",
        "weights 0.60 and 0.40",
        "Training loss",
        "robust: 102.0",
    ):
        assert words in page.text
    assert '"method": "</pre>ncr"' in page.text


def test_words_are_marked_where_they_are_whole_words():
    assert marked("a Dog, dogs & dog", ["dog"]).count("<mark>") == 2
    assert marked("a hot dog", ["dog", "hot dog"]).count("<mark>") == 1
    assert marked("c++ (x) <c++>", ["c++"]).count("<mark>") == 2
    assert "&lt;" in marked("a < b", ["a"])
    assert len(marked("x" * 10_000, ["y"])) < 1000
    assert marked("nothing & here", []) == "nothing &amp; here"
