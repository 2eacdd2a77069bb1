"""Whole audits of small data: what they find, and what they leave on the disk."""

import json
from types import ModuleType

import numpy as np
import polars as pl
import pytest

import truepair
from truepair.audit import deep
from truepair.audit.auditing import audit
from truepair.audit.folder import read_audit
from truepair.audit.gallery import strongest_first
from truepair.audit.review import Decision, append_decision
from truepair.errors import DataError, TruepairError
from truepair.pairs.readers import find_splits, load_pairs
from truepair.training.schedule import Schedule

SHORT = Schedule(warmup=0, pieces=(6,), learning_rate=4e-3)
SMALL = {"embedding": 32, "word_width": 16}


@pytest.fixture(scope="module")
def noisy(pictured_words, tmp_path_factory):
    out = tmp_path_factory.mktemp("noisy") / "audit"
    return audit(pictured_words, out, noise=0.3, apply_rematch=True)


@pytest.fixture(scope="module")
def run(pictured_words, tmp_path_factory):
    return truepair.fit(
        pictured_words,
        method="plain",
        noise=0.3,
        out=tmp_path_factory.mktemp("runs") / "run",
        schedule=SHORT,
        matcher_options=SMALL,
        quiet=True,
    )


def test_what_was_put_in_is_found(noisy):
    truth = noisy.summary["truth"]
    low, high = noisy.summary["interval"]
    assert low - 0.02 < truth["share"] < high + 0.02
    assert truth["precision"] > 0.85
    assert truth["auc"] > 0.9
    assert noisy.summary["flagged"] > 100


def test_what_is_written_is_what_was_found(noisy, pictured_words):
    back = read_audit(noisy.folder)
    assert back.summary == json.loads(json.dumps(noisy.summary))
    assert back.suspects.equals(noisy.suspects)
    pairs = load_pairs(pictured_words, noise=0.3)
    assert back.suspects["pair_id"].to_list() == list(pairs.ids)
    assert back.suspects["image_row"].to_list() == pairs.image_of.tolist()
    assert back.suspects["match_score"].is_between(0, 1).all()
    assert back.suspects["mismatch_probability"].is_between(0, 1).all()
    assert not list(noisy.folder.rglob(".*"))


def test_clean_data_are_the_pairs_that_are_not_flagged(noisy, pictured_words):
    clean = load_pairs(noisy.folder / "clean")
    kept = noisy.suspects.filter(~pl.col("is_mismatch"))
    assert list(clean.ids) == kept["pair_id"].to_list()
    assert clean.mismatched.mean() < noisy.summary["truth"]["share"]
    assert find_splits(noisy.folder / "clean") == find_splits(pictured_words)
    table = pl.read_parquet(noisy.folder / "clean.parquet")
    assert table["pair_id"].to_list() == list(clean.ids)
    assert (noisy.folder / "clean_caps.txt").read_text().splitlines() == list(clean.texts)
    assert len(clean) == noisy.summary["kept"]


def test_repaired_data_have_the_sure_proposals_too(noisy):
    repaired, clean = (load_pairs(noisy.folder / name) for name in ("repaired", "clean"))
    sure = noisy.suspects.filter("is_rematch")
    assert len(repaired) == len(clean) + len(sure) == noisy.summary["repaired"]
    assert len(sure) > 10
    place = {name: row for row, name in enumerate(repaired.ids)}
    for row in sure.iter_rows(named=True):
        assert repaired.image_of[place[row["pair_id"]]] == row["other_image_row"]
    rematched = [place[name] for name in sure["pair_id"]]
    assert repaired.mismatched[rematched].mean() < 0.3


def test_the_same_seed_gives_the_same_answer(noisy, pictured_words):
    again = audit(pictured_words, noise=0.3)
    assert again.folder is None
    assert again.suspects.equals(noisy.suspects)


def test_true_pairs_are_left_alone(pictured_words):
    found = audit(pictured_words)
    assert found.summary["truth"] is None
    assert found.summary["flagged"] <= len(found.suspects) // 100
    assert found.summary["interval"][0] < 0.02


def test_auditing_again_applies_decisions(pictured_words, tmp_path):
    first = audit(pictured_words, tmp_path / "a", noise=0.3)
    flagged = strongest_first(first.suspects)["pair_id"].to_list()
    other = first.suspects.filter(~pl.col("is_mismatch"))["pair_id"][0]
    append_decision(tmp_path / "a" / "decisions.jsonl", Decision(flagged[0], "keep"))
    append_decision(tmp_path / "a" / "decisions.jsonl", Decision(other, "drop"))
    second = audit(pictured_words, tmp_path / "a", noise=0.3)
    assert second.summary["decisions_applied"] == 2
    ids = set(load_pairs(tmp_path / "a" / "clean").ids)
    assert flagged[0] in ids
    assert other not in ids
    assert "decided: keep" in (tmp_path / "a" / "report.html").read_text()


def test_an_audit_that_was_stopped_is_not_taken_for_finished(pictured_words, tmp_path, monkeypatch):
    audit(pictured_words, tmp_path / "a")
    with monkeypatch.context() as patched:
        patched.setattr("truepair.audit.auditing.write_report", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            audit(pictured_words, tmp_path / "a", noise=0.3)
    with pytest.raises(DataError, match="not a finished audit"):
        read_audit(tmp_path / "a")
    audit(pictured_words, tmp_path / "a")
    read_audit(tmp_path / "a")


@pytest.fixture
def embeddings(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.normal(size=(600, 12))
    np.save(tmp_path / "images.npy", images.astype(np.float32))
    texts = images @ generator.normal(size=(12, 10)) + generator.normal(size=(600, 10))
    np.save(tmp_path / "texts.npy", texts.astype(np.float32))
    return tmp_path


def test_embeddings_without_words(embeddings):
    tmp_path = embeddings
    found = audit(tmp_path, tmp_path / "out", noise=0.4)
    assert found.summary["truth"]["precision"] > 0.8
    assert found.suspects["text"].null_count() == 600
    clean = load_pairs(tmp_path / "out" / "clean")
    assert list(clean.ids) == found.suspects.filter(~pl.col("is_mismatch"))["pair_id"].to_list()
    assert not (tmp_path / "out" / "clean_caps.txt").exists()
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Strongest suspects" in report
    assert "None" not in report.split('id="suspects"')[1].split('id="settings"')[0]


def test_a_run_is_asked_about_its_pairs(run, tmp_path):
    found = audit(run.folder, tmp_path / "a")
    assert found.summary["kind"] == "run"
    assert "by heart" in found.summary["notes"][0]
    assert found.summary["truth"]["auc"] > 0.7
    quick = audit(run.config["config"]["data"], noise=0.3, noise_seed=0)
    assert found.summary["estimated_share"] == quick.summary["estimated_share"]
    for name in ("loss", "clean", "correspondence", "quick_mismatch_probability"):
        assert found.suspects[name].null_count() == 0
    ledger = run.ledger()
    assert found.suspects["pair_id"].to_list() == ledger["pair_id"].to_list()
    assert found.suspects["loss"].to_list() == ledger["loss"].to_list()
    assert found.suspects["unsupported_words"].list.len().sum() > 0
    assert "Training loss" in (tmp_path / "a" / "report.html").read_text()
    assert (
        load_pairs(tmp_path / "a" / "clean").image_ids == load_pairs(run.config["config"]["data"]).image_ids
    )


def test_deep_judges_every_pair_without_having_seen_it(pictured_words, run, tmp_path, monkeypatch):
    trained_on = []
    started = deep.start

    def start(config, folder, **options):
        trained_on.append(set(options["pairs"].ids))
        return started(config, folder, **options)

    monkeypatch.setattr(deep, "start", start)
    found = audit(run.folder, tmp_path / "a", deep=True)
    assert found.summary["kind"] == "deep"
    assert found.summary["truth"]["auc"] > 0.6
    assert len(trained_on) == deep.FOLDS
    pairs = load_pairs(pictured_words, noise=0.3, noise_seed=0)
    everything = set(pairs.ids)
    held = [everything - ids for ids in trained_on]
    assert set.union(*held) == everything
    assert sum(map(len, held)) == len(everything)
    image = dict(zip(pairs.ids, pairs.image_of.tolist(), strict=True))
    for ids, out in zip(trained_on, held, strict=True):
        assert not {image[name] for name in ids} & {image[name] for name in out}

    again = audit(run.folder, tmp_path / "a", deep=True)
    assert len(trained_on) == deep.FOLDS  # finished folds are used again
    assert again.suspects.equals(found.suspects)


def test_a_deep_audit_that_was_stopped_goes_on(embeddings, tmp_path, monkeypatch):
    monkeypatch.setattr(deep, "preset", lambda *names: SHORT)
    monkeypatch.setattr(deep, "FOLDS", 2)
    whole = audit(embeddings, tmp_path / "whole", noise=0.3, deep=True)
    started = deep.start
    with monkeypatch.context() as patched:
        calls = []

        def start(*arguments, **options):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return started(*arguments, **options)

        patched.setattr(deep, "start", start)
        with pytest.raises(KeyboardInterrupt):
            audit(embeddings, tmp_path / "a", noise=0.3, deep=True)
    before = (tmp_path / "a" / "deep" / "fold-0" / "ledger.parquet").stat().st_mtime_ns
    found = audit(embeddings, tmp_path / "a", noise=0.3, deep=True)
    assert (tmp_path / "a" / "deep" / "fold-0" / "ledger.parquet").stat().st_mtime_ns == before
    assert found.suspects.equals(whole.suspects)
    audit(embeddings, tmp_path / "a", noise=0.3, deep=True, seed=5)  # other folds
    assert (tmp_path / "a" / "deep" / "fold-0" / "ledger.parquet").stat().st_mtime_ns != before


def test_deep_on_data_trains_a_plain_matcher_with_the_witness(embeddings, monkeypatch):
    monkeypatch.setattr(deep, "preset", lambda *names: SHORT)
    monkeypatch.setattr(deep, "FOLDS", 2)
    found = audit(embeddings, embeddings / "a", noise=0.3, deep=True)
    config = truepair.Run(embeddings / "a" / "deep" / "fold-1").config["config"]
    assert (config["method"]["name"], config["prior"], config["matcher"]) == (
        "plain",
        "witness",
        "projection",
    )
    assert found.summary["truth"]["auc"] > 0.7


def test_what_makes_no_sense_is_refused(run, pictured_words, tmp_path):
    with pytest.raises(TruepairError, match="error rate"):
        audit(pictured_words, error_rate=1.5)
    with pytest.raises(TruepairError, match="own noise"):
        audit(run.folder, noise=0.2)
    with pytest.raises(TruepairError, match="needs a folder"):
        audit(pictured_words, deep=True)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="something else"):
        audit(pictured_words, tmp_path)
    with pytest.raises(DataError, match="something else"):
        audit(pictured_words, pictured_words)


def test_the_package_is_the_function():
    assert isinstance(truepair.audit, ModuleType)
    assert callable(truepair.audit)
    with pytest.raises(DataError, match="nothing at this path"):
        truepair.audit("nowhere")
    from truepair.audit.report import write_report

    assert callable(write_report)
    assert "audit" in truepair.__all__
