"""truepair train, and what evaluate and methods say about its runs."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from truepair.cli import main
from truepair.methods.registry import METHODS
from truepair.training.config import TrainConfig
from truepair.training.run import Run

SMALL = [
    "--vse-infty.embedding=16",
    "--vse-infty.word-width=8",
    "--schedule.batch-size=50",
    "--schedule.warmup=1",
]


def options(data, folder, *more):
    return ["train", str(data), f"--out={folder}", "--schedule.pieces=1", *SMALL, *more]


@pytest.fixture(scope="module")
def run(tiny_data, tmp_path_factory) -> Run:
    """A run of two networks on noisy pairs."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(options(tiny_data, folder, "--method=ncr", "--noise=0.3", "--seed=1", "--json")) == 0
    return Run(folder)


def test_a_run_is_summed_up_as_json_and_nothing_else_is_printed(tiny_data, tmp_path):
    command = [
        sys.executable,
        "-m",
        "truepair",
        *options(tiny_data, tmp_path / "run", "--method=plain", "--json"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert ended.stderr == ""
    assert summary["run"] == str(tmp_path / "run")
    assert summary["epochs"] == 2
    assert summary["best_epoch"] in (1, 2)
    assert summary["validation"]["ensemble"]["rsum"] > 0


def test_people_see_a_line_per_epoch_and_a_table(tiny_data, tmp_path, capsys):
    assert main(options(tiny_data, tmp_path / "run", "--method=gsl", "--noise=0.3")) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in err.splitlines()] == [
        ["epoch", "1", "warm-up"],
        ["epoch", "2", "piece"],
    ]
    assert all(" s" in line and "ensemble" in line for line in err.splitlines())
    rows = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert rows[:4] == ["i2t", "network", "network", "ensemble"]
    assert "wrong pairs by division" in out
    assert max(map(len, out.splitlines())) < 120


def test_options_reach_the_run(tiny_data, tmp_path):
    words = options(
        tiny_data,
        tmp_path / "run",
        "--method=gsl",
        "--gsl.no-foa2",
        "--gsl.intra-weight=0.5",
        "--noise=0.2",
        "--noise-protocol=image",
        "--noise-seed=9",
        "--seed=4",
        "--first-images=20",
        "--schedule.learning-rate=1e-3",
        "--precision=bf16",
        "--json",
    )
    assert main(words) == 0
    config = TrainConfig.from_json(Run(tmp_path / "run").config["config"])
    assert (config.method.foa2, config.method.intra_weight, config.method.galc) == (False, 0.5, True)
    assert (config.noise.source, config.noise.protocol, config.noise.seed) == (0.2, "image", 9)
    assert (config.seed, config.first_images, config.precision) == (4, 20, "bf16")
    assert config.schedule.learning_rate == 1e-3
    assert config.matcher_options == {"embedding": 16, "word_width": 8}


@pytest.mark.parametrize(
    ("method", "switches"),
    {
        "gsl": ["galc", "foa2", "sct"],
        "recon": ["true-positives", "relations", "penalty"],
        "srem": ["ranking", "bounding", "complementary"],
        "crcl": ["active", "complementary", "correction"],
        "ncr": ["co-divide", "co-rectify"],
    }.items(),
)
def test_every_ablation_is_an_option(method, switches, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--method", method, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for switch in switches:
        assert f"--{method}.no-{switch}" in shown


def test_help_shows_the_chosen_method_and_matcher_only(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--method=gsl", "--matcher", "sgr", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for option in (
        "--gsl.anchor-images",
        "--sgr.region-norm",
        "--schedule.patience",
        "--resume",
        "--division",
    ):
        assert option in shown
    assert "--ncr." not in shown
    assert "--vse-infty." not in shown
    assert "Geometry-aware label correction" in shown, "fields explain themselves"


def test_presets_set_the_schedule_and_single_values_override_it(tiny_data):
    import tyro

    from truepair.cli.train import config_of, options_for

    words = [str(tiny_data), "--method=gsl", "--preset", "coco", "--schedule.batch-size=64"]
    schedule = config_of(tyro.cli(options_for(words), args=words)).schedule
    assert (schedule.warmup, schedule.pieces, schedule.batch_size) == (10, (40,), 64)


@pytest.mark.parametrize(
    ("words", "negatives"),
    [([], "mean"), (["--preset=coco"], "hardest"), (["--gsl.negatives=hardest"], "hardest")],
)
def test_presets_set_a_methods_values_too(tiny_data, words, negatives):
    import tyro

    from truepair.cli.train import config_of, options_for

    words = [str(tiny_data), "--method=gsl", *words]
    assert config_of(tyro.cli(options_for(words), args=words)).method.negatives == negatives


# Errors give exit code 2 and say what to do


def test_a_folder_that_holds_a_run_is_refused(run, tiny_data, capsys):
    before = (run.folder / "metrics.jsonl").read_bytes()
    assert main(options(tiny_data, run.folder)) == 2
    assert re.search(r"holds a run already.*--resume", capsys.readouterr().err)
    assert (run.folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train"], "Name the data"),
        (["train", "--resume", "nowhere"], "not a run"),
        (["train", "nowhere"], "nothing at this path"),
        (["train", "DATA", "--noise=1.5"], "between 0 and 1"),
        (["train", "DATA", "--noise=missing.npy"], "missing.npy"),
        (["train", "DATA", "--true-pairs-only"], "which pairs are true"),
        (["train", "DATA", "--vse-infty.image-width=9"], "The data decides"),
        (["train", "DATA", "--method=gls"], "There is no method 'gls'"),
        (["train", "DATA", "--matcher=sgar"], "There is no matcher 'sgar'"),
        (["train", "DATA", "--preset=big"], "There is no preset 'big'"),
        (["train", "DATA", "--method=recon", "--matcher=projection"], "one vector"),
        (["train", "DATA", "--matcher=projection"], "text"),
    ],
)
def test_mistakes_are_explained(words, said, tiny_data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(tiny_data) if word == "DATA" else word for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


def test_a_truncated_checkpoint_is_named(run, tiny_data, tmp_path, capsys):
    words = options(tiny_data, tmp_path / "run", "--method=plain", "--json")
    assert main(words) == 0
    capsys.readouterr()
    path = Run(tmp_path / "run").checkpoint_path("last")
    path.write_bytes(path.read_bytes()[:1000])
    (tmp_path / "run" / "ledger.parquet").unlink()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 2
    assert re.search(r"last\.safetensors.*not a checkpoint", capsys.readouterr().err)


def test_a_finished_run_is_told_again(run, capsys):
    assert main(["train", "--resume", str(run.folder), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["epochs"] == 2
    assert summary["run"] == str(run.folder)


# What other verbs say about it

SIDE = {"r1", "r5", "r10", "medr", "meanr"}


def test_evaluate_has_every_network_the_ensemble_and_identification(run, capsys):
    assert main(["evaluate", str(run.folder), "--split", "test", "--protocol", "f30k", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["networks"]) == 2
    for measured in (*result["networks"], result["ensemble"]):
        assert set(measured) == {"i2t", "t2i", "rsum"}
        assert set(measured["i2t"]) == set(measured["t2i"]) == SIDE
        sums = [measured[side][key] for side in ("i2t", "t2i") for key in ("r1", "r5", "r10")]
        assert measured["rsum"] == pytest.approx(sum(sums))
    found = result["identification"]
    assert {"precision", "recall", "auc"} <= found.keys()
    assert found["source"] == "division"
    assert {"by_division", "by_labels"} <= found.keys()
    assert (result["split"], result["protocol"], result["seed"]) == ("test", "f30k", 1)
    assert result["data"]["sources"][0]["sha256"]
    assert {"config", "versions", "training_data", "epoch"} <= result.keys()


def test_evaluate_measures_the_best_epoch_as_training_did(run, capsys):
    assert main(["evaluate", str(run.folder), "--split", "dev", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    entry = run.metrics[result["epoch"] - 1]
    assert entry["best"]
    assert {name: result[name] for name in ("networks", "ensemble")} == entry["validation"]
    assert main(["evaluate", str(run.folder), "--split", "dev", "--checkpoint=last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ensemble"] == run.metrics[-1]["validation"]["ensemble"]


def test_evaluate_shows_a_table_to_people(run, capsys):
    assert main(["evaluate", str(run.folder)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["network", "network", "ensemble"]
    assert "wrong training pairs by division" in out


def test_without_truth_there_is_nothing_to_identify(tiny_data, tmp_path, capsys):
    assert main(options(tiny_data, tmp_path / "run", "--method=plain", "--json")) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["identification"] is None
    assert len(result["networks"]) == 1
    assert result["networks"][0] == result["ensemble"]


def test_evaluating_what_is_not_there_is_explained(run, tmp_path, capsys):
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "not a run" in capsys.readouterr().err
    assert main(["evaluate", str(run.folder), "--split", "verify"]) == 2
    assert "no split 'verify'" in capsys.readouterr().err
    assert main(["evaluate", str(run.folder), "--protocol", "coco-5k"]) == 2
    assert "needs 5000 images" in capsys.readouterr().err


def test_methods_lists_every_method_with_its_values(capsys):
    assert main(["methods", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(listed) == list(METHODS)
    for name, method in METHODS.items():
        assert listed[name]["values"] == {f.name: _plain(f.default) for f in dataclasses.fields(method)}
        assert listed[name]["networks"] == method.networks
    assert listed["gsl"]["values"]["inter_weight"] == 0.1
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in METHODS)


def _plain(value):
    return list(value) if isinstance(value, tuple) else value
