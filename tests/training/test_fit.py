import json

import numpy as np
import pytest
import torch

from truepair.errors import DataError, TruepairError
from truepair.evaluation.networks import evaluate_networks
from truepair.methods.ncr import NCR
from truepair.pairs.batch import BatchReader
from truepair.pairs.noise import Noise, make_noise, write_noise
from truepair.pairs.readers import load_pairs
from truepair.training.config import NoiseConfig, TrainConfig
from truepair.training.fit import fit, fresh_networks, load_networks, resume, training_pairs
from truepair.training.run import Run


def config(data, **values) -> TrainConfig:
    return TrainConfig(str(data), NCR(), **values)


# Data


def test_noise_comes_from_the_runs_seed_or_from_its_own(tiny_data):
    clean = load_pairs(tiny_data, "train")
    by_run = training_pairs(config(tiny_data, noise=NoiseConfig(0.4), seed=3))
    assert np.array_equal(by_run.image_of, make_noise(clean, Noise(0.4, 3)).image_of)
    by_noise = training_pairs(config(tiny_data, noise=NoiseConfig(0.4, seed=9), seed=3))
    assert np.array_equal(by_noise.image_of, make_noise(clean, Noise(0.4, 9)).image_of)
    by_image = training_pairs(config(tiny_data, noise=NoiseConfig(0.4, "image"), seed=3))
    assert all(len(set(by_image.image_of[i : i + 5])) == 1 for i in range(0, 200, 5))


def test_noise_may_come_from_an_index_file(tiny_data, tmp_path):
    index = make_noise(load_pairs(tiny_data, "train"), Noise(0.4, 7)).image_of
    write_noise(tmp_path / "0.4_noise.npy", index)
    pairs = training_pairs(config(tiny_data, noise=NoiseConfig(str(tmp_path / "0.4_noise.npy"))))
    assert np.array_equal(pairs.image_of, index)
    assert pairs.mismatched is not None


def test_the_true_pairs_can_be_had_alone_where_they_are_known(tiny_data):
    noisy = training_pairs(config(tiny_data, noise=NoiseConfig(0.5), seed=1))
    true = training_pairs(config(tiny_data, noise=NoiseConfig(0.5), seed=1, true_pairs_only=True))
    assert len(true) == int((~noisy.mismatched).sum()) < 200
    assert not true.mismatched.any()
    with pytest.raises(TruepairError, match="which pairs are true"):
        training_pairs(config(tiny_data, true_pairs_only=True))


def test_the_first_images_bring_their_own_pairs_and_noise(tiny_data):
    pairs = training_pairs(config(tiny_data, first_images=10, noise=NoiseConfig(0.4), seed=2))
    assert len(pairs) == 50
    assert pairs.n_images == len(pairs.image_ids) == 10
    assert int(pairs.image_of.max()) == 9
    assert pairs.texts == load_pairs(tiny_data, "train").texts[:50]


# Networks


def test_networks_differ_from_each_other_and_from_seed_to_seed(tiny_data):
    sizes = {"image_width": 12, "vocabulary_size": 20}
    options = {"matcher_options": {"word_width": 4, "embedding": 8, "position_width": 4, "pooling_hidden": 4}}

    def weights(seed, piece):
        networks = fresh_networks(config(tiny_data, seed=seed, **options), sizes, piece)
        return [next(network.parameters()).detach() for network in networks]

    first = weights(1, 0)
    assert len(first) == 2
    assert all(torch.equal(a, b) for a, b in zip(first, weights(1, 0), strict=True))
    different = [*first, *weights(2, 0), *weights(1, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(different) for b in different[:i])


def test_the_best_networks_come_back_as_they_were_validated(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "ncr", out=tmp_path / "run", noise=0.2, **quick())
    for which in ("best", "last"):
        networks, epoch = load_networks(run, which)
        assert len(networks) == 2
        assert not any(network.training for network in networks)
        reader = BatchReader(load_pairs(tiny_data, "dev"), run.vocabulary())
        assert evaluate_networks(networks, reader, shown=False) == run.metrics[epoch - 1]["validation"]


# Folders


def test_a_folder_holds_one_run(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "plain", out=tmp_path / "run", **quick(warmup=0, pieces=(1,)))
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    with pytest.raises(TruepairError, match=r"holds a run already.*--resume"):
        fit(tiny_data, "plain", out=run.folder, **quick(warmup=0, pieces=(1,)))
    # A finished run that is resumed stays as it is.
    assert resume(run.folder, quiet=True) == run
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


def test_checkpoints_without_a_config_are_not_taken_for_a_new_run(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "plain", out=tmp_path / "run", **quick(warmup=0, pieces=(1,)))
    (run.folder / "config.json").unlink()
    with pytest.raises(TruepairError, match="holds a run already"):
        fit(tiny_data, "plain", out=run.folder, **quick(warmup=0, pieces=(1,)))
    with pytest.raises(DataError, match="not a run"):
        resume(run.folder)


def test_a_run_says_what_it_was_made_of(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "plain", out=tmp_path / "run", noise=0.4, seed=5, **quick(warmup=0, pieces=(1,)))
    facts = run.config
    assert facts["pairs"] == 200
    assert facts["config"]["seed"] == 5
    assert facts["data"]["noise"]["nominal"] == 0.4
    assert 0.3 < facts["data"]["noise"]["measured"] <= 0.4
    assert all(len(source["sha256"]) == 64 for source in facts["data"]["sources"])
    assert facts["sizes"] == {"image_width": 12, "vocabulary_size": len(run.vocabulary())}


def test_a_run_is_not_resumed_on_other_data(tiny_data, tmp_path, quick):
    data = tmp_path / "data"
    data.mkdir()
    for path in tiny_data.iterdir():
        (data / path.name).write_bytes(path.read_bytes())
    run = fit(data, "plain", out=tmp_path / "run", **quick(warmup=0, pieces=(1,)))
    (run.folder / "ledger.parquet").unlink()
    captions = (data / "train_caps.txt").read_text()
    (data / "train_caps.txt").write_text(captions.replace("filler1", "filler2", 1))
    with pytest.raises(TruepairError, match="hashes have changed"):
        resume(run.folder, quiet=True)
    (data / "train_caps.txt").write_text(captions)
    assert resume(run.folder, quiet=True).finished


def test_lost_history_is_named(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "plain", out=tmp_path / "run", **quick(warmup=0, pieces=(1,)))
    (run.folder / "ledger.parquet").unlink()
    (run.beliefs_folder() / "0000.safetensors").unlink()
    with pytest.raises(DataError, match=r"0000\.safetensors.*history"):
        resume(run.folder, quiet=True)


def test_without_a_validation_split_the_last_epoch_is_the_best(tiny_data, tmp_path, quick):
    for name in ("train_ims.npy", "train_caps.txt"):
        (tmp_path / name).write_bytes((tiny_data / name).read_bytes())
    run = fit(tmp_path, "plain", out=tmp_path / "run", **quick(warmup=0, pieces=(2,)))
    assert [entry["best"] for entry in run.metrics] == [True, True]
    assert "validation" not in run.metrics[0]
    assert run.checkpoint("best").facts["position"]["epoch"] == 2


def test_embeddings_need_no_words(tmp_path, quick):
    rng = np.random.default_rng(0)
    for split, pairs in (("train", 60), ("dev", 20)):
        images = rng.standard_normal((pairs, 10)).astype(np.float32)
        np.save(tmp_path / f"{split}_images.npy", images)
        np.save(
            tmp_path / f"{split}_texts.npy",
            images[:, :6] + rng.standard_normal((pairs, 6)).astype(np.float32) / 4,
        )
    arguments = {**quick(pieces=(3,)), "matcher_options": {"embedding": 8}}
    run = fit(tmp_path, "ncr", "projection", out=tmp_path / "run", noise=0.2, **arguments)
    assert run.vocabulary() is None
    assert run.config["sizes"] == {"image_width": 10, "text_width": 6}
    assert (
        run.metrics[-1]["validation"]["ensemble"]["rsum"] > run.metrics[0]["validation"]["ensemble"]["rsum"]
    )
    with pytest.raises(TruepairError, match="one vector"):
        fit(tmp_path, "recon", "projection", out=tmp_path / "other", **arguments)
    assert not (tmp_path / "other").exists(), "nothing was trained before the error"


# Beliefs at the end


def test_the_ledger_has_a_row_for_every_pair_with_its_truth(tiny_data, tmp_path, quick):
    run = fit(tiny_data, "gsl", out=tmp_path / "run", noise=0.4, seed=2, **quick(pieces=(2,)))
    ledger, pairs = run.ledger(), load_pairs(tiny_data, "train")
    assert ledger["pair_id"].to_list() == list(pairs.ids)
    assert ledger["text"].to_list() == list(pairs.texts)
    assert ledger["truly_mismatched"].mean() == pytest.approx(run.config["data"]["noise"]["measured"])
    assert ledger["correspondence_history"].dtype.shape == (3,)
    beliefs = run.metrics[-1]["beliefs"]
    assert beliefs["clean_share"] == pytest.approx(
        1 - np.mean([(ledger[f"partition_{k}"] == "noisy").mean() for k in (0, 1)])
    )
    assert json.dumps(beliefs, allow_nan=False)
    assert Run(run.folder).finished


@pytest.mark.parametrize("method", ["ncr", "gsl", "recon"])
def test_the_repairing_division_trains_on_decoys_and_says_nothing_about_them(
    tiny_data, tmp_path, quick, method
):
    run = fit(tiny_data, method, out=tmp_path / "run", noise=0.4, division="repairing", **quick())
    ledger, given = run.ledger(), training_pairs(TrainConfig.from_json(run.config["config"]))
    decoys = ledger["decoy"].to_numpy()
    assert 10 <= decoys.sum() <= 20
    assert ledger["truly_mismatched"].to_list() == given.mismatched.tolist(), "the truth of the given pairs"
    assert ledger["clean"].is_null().to_list() == decoys.tolist()
    found = run.metrics[-1]["beliefs"]["by_division"]
    assert found["pairs"] == 200 - decoys.sum()
