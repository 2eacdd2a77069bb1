import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from truepair.errors import DataError, TruepairError
from truepair.features import describe as describing
from truepair.features.embed import UNFINISHED, embed_source
from truepair.features.patches import describe, scaled
from truepair.features.pictures import open_picture
from truepair.features.sources import Names
from truepair.pairs.readers import find_splits, load_pairs

from .test_sources import tar_of


def write_table(folder, rows, name="captions.csv"):
    pl.DataFrame(rows).write_csv(folder / name)


@pytest.fixture
def source(tmp_path, pictures_in):
    """Forty pictures with two captions each, split by a column."""
    folder = tmp_path / "source"
    names = pictures_in(folder, 40)
    rows = [
        {"path": name, "text": f"{kind} picture {k}", "split": "test" if k % 4 == 0 else "train"}
        for k, name in enumerate(names)
        for kind in ("first", "second")
    ]
    write_table(folder, rows)
    return folder


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(describing, "SHARD", 8)
    monkeypatch.setattr(describing, "BATCH", 3)


def bytes_of(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def rejects_of(folder):
    return pl.read_parquet(folder / "rejects.parquet").rows(named=True)


def test_the_data_folder_is_read_by_load_pairs(source, tmp_path):
    out = tmp_path / "data"
    summary = embed_source(source, out, workers=1)
    assert find_splits(out) == ["train", "test"]
    assert summary["splits"] == {
        "test": {"pictures": 10, "pairs": 20},
        "train": {"pictures": 30, "pairs": 60},
    }
    test = load_pairs(out, "test")
    assert test.texts[:3] == ["first picture 0", "second picture 0", "first picture 4"]
    assert test.image_of.tolist() == [k // 2 for k in range(20)]
    assert test.ids[:3] == ["row-0", "row-1", "row-8"]
    assert test.image_ids[1] == "photo-4.png"
    assert Path(test.picture_paths[1]).samefile(source / "photo-4.png")
    assert test.images.dtype == np.float16
    assert not (out / UNFINISHED).exists()


def test_features_are_the_whitened_cells_of_the_right_picture(source, tmp_path, small_shards):
    embed_source(source, tmp_path / "data", workers=1)
    test = load_pairs(tmp_path / "data", "test")
    with np.load(tmp_path / "data" / "whitening.npz") as axes:
        for row in (0, 3, 9):
            picture, _ = open_picture((source / test.image_ids[row]).read_bytes())
            cells = describe(scaled(picture)).astype(np.float16).astype(np.float64)
            local = (cells - axes["local_mean"]) @ axes["local_axes"]
            whole = (cells.ravel() - axes["global_mean"]) @ axes["global_axes"]
            expected = np.hstack([local, np.tile(whole, (len(cells), 1))])
            np.testing.assert_allclose(test.images[row], expected, rtol=2e-3, atol=5e-3)


def test_whitening_is_fitted_on_the_training_split_alone(source, tmp_path):
    embed_source(source, tmp_path / "a", workers=1)
    for name in ("photo-0.png", "photo-4.png"):  # of the test split
        (source / name).write_bytes((source / "photo-8.png").read_bytes())
    embed_source(source, tmp_path / "b", workers=1)
    same, other = bytes_of(tmp_path / "a"), bytes_of(tmp_path / "b")
    assert same["whitening.npz"] == other["whitening.npz"]
    assert same["train_ims.npy"] == other["train_ims.npy"]
    assert same["test_ims.npy"] != other["test_ims.npy"]


def test_workers_and_shards_do_not_change_a_byte(source, tmp_path, small_shards):
    embed_source(source, tmp_path / "one", workers=1)
    embed_source(source, tmp_path / "three", workers=3)
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "three")


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bytes(source, tmp_path, small_shards, monkeypatch):
    embed_source(source, tmp_path / "whole", workers=1)
    done = []
    original = describing.describe_shard

    def interrupted(extractor, places):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(places)
        return original(extractor, places)

    monkeypatch.setattr(describing, "describe_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embed_source(source, tmp_path / "data", workers=1)
    assert len(list((tmp_path / "data" / UNFINISHED).glob("*.npz"))) == 3
    again = []
    monkeypatch.setattr(describing, "describe_shard", lambda e, p: again.append(p) or original(e, p))
    embed_source(source, tmp_path / "data", workers=1)
    assert len(again) == 2
    assert bytes_of(tmp_path / "data") == bytes_of(tmp_path / "whole")


def test_changed_pictures_are_not_taken_from_the_interrupted_run(source, tmp_path, small_shards, monkeypatch):
    original = describing.describe_shard
    calls = []

    def interrupted(extractor, places):
        if calls:
            raise KeyboardInterrupt
        calls.append(places)
        return original(extractor, places)

    monkeypatch.setattr(describing, "describe_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embed_source(source, tmp_path / "data", workers=1)
    monkeypatch.setattr(describing, "describe_shard", original)
    (source / "photo-0.png").write_bytes((source / "photo-1.png").read_bytes() + b"\0")
    embed_source(source, tmp_path / "data", workers=1)
    test, train = load_pairs(tmp_path / "data", "test"), load_pairs(tmp_path / "data", "train")
    np.testing.assert_array_equal(test.images[0], train.images[0])


def test_killed_and_run_again(source, tmp_path, small_shards):
    """kill -9 of the command: the second run ends with the bytes of an undisturbed one."""
    script = (
        "import sys; from truepair.features import describe; describe.SHARD = 8\n"
        "from truepair.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    out = tmp_path / "data"
    words = ["embed", str(source), "--out", str(out), "--workers", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", script, *words], env=environment)
    deadline = time.monotonic() + 60
    while process.poll() is None and not list((out / UNFINISHED).glob("*.npz")):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.wait()
    kept = len(list((out / UNFINISHED).glob("[0-9]*.npz")))
    assert kept > 0
    embed_source(source, out, workers=1)
    embed_source(source, tmp_path / "whole", workers=1)
    assert bytes_of(out) == bytes_of(tmp_path / "whole")


def test_hostile_files_are_handled_or_named(tmp_path, pictures_in, broken, odd):
    folder = tmp_path / "source"
    names = pictures_in(folder, 10)
    for name, (data, _) in {**broken, **odd}.items():
        (folder / name).write_bytes(data)
    (folder / "folder.jpg").mkdir()
    table = b"path,text,split\n"
    for name in [*names, *broken, *odd, "folder.jpg", "absent.jpg"]:
        table += f'"{name}",a caption,train\n"{name}",another caption,train\n'.encode()
    table += b"photo-0.png,,train\nphoto-1.png,caf\xe9,train\nphoto-2.png,three,\nphoto-3.png,a,train,more\n"
    (folder / "captions.csv").write_bytes(table)
    summary = embed_source(folder, tmp_path / "data", workers=1)

    rejects = rejects_of(tmp_path / "data")
    by_picture = {reject["picture"]: reject for reject in rejects if reject["what"] == "picture"}
    expected = {name: reasons for name, (_, reasons) in broken.items()}
    expected |= {"folder.jpg": "not a file", "absent.jpg": "missing file"}
    assert set(by_picture) == set(expected)
    for name, reasons in expected.items():
        assert by_picture[name]["reason"] in reasons.split("|"), name
        assert len(by_picture[name]["pair_ids"]) == 2
        assert by_picture[name]["row"].startswith("line ")
    others = [reject["reason"] for reject in rejects if reject["what"] != "picture"]
    assert sorted(others) == ["caption is not UTF-8", "empty caption", "no split", "too many cells"]

    train = load_pairs(tmp_path / "data", "train")
    assert set(train.image_ids) == {*names, *odd}
    lost = sum(len(reject["pair_ids"]) for reject in rejects)
    assert len(train) + lost == table.count(b"\n") - 1
    assert summary["pairs_lost"] == lost
    assert summary["notes"]["animated or several pages, the first was taken"] == 2
    assert sum(summary["rejects"].values()) == len(rejects)


def test_splits_by_hash_stay_when_pictures_come_and_go(tmp_path, pictures_in):
    folder = tmp_path / "source"
    names = pictures_in(folder, 60)
    shares = {"train": 0.5, "dev": 0.25, "test": 0.25}
    write_table(folder, {"path": names, "text": names})
    embed_source(folder, tmp_path / "a", shares=shares, workers=1)
    write_table(folder, {"path": names[::2], "text": names[::2]})
    embed_source(folder, tmp_path / "b", shares=shares, workers=1)
    for name in shares:
        before, after = load_pairs(tmp_path / "a", name), load_pairs(tmp_path / "b", name)
        assert 0 < len(before) < 45
        assert after.image_ids == [image for image in before.image_ids if image in names[::2]]


def test_all_into_one_split_with_the_whitening_of_another_folder(source, tmp_path):
    embed_source(source, tmp_path / "first", workers=1)
    summary = embed_source(source, tmp_path / "new", split="web", like=tmp_path / "first", workers=1)
    assert summary["splits"] == {"web": {"pictures": 40, "pairs": 80}}
    first, new = load_pairs(tmp_path / "first", "train"), load_pairs(tmp_path / "new", "web")
    row = new.image_ids.index(first.image_ids[5])
    np.testing.assert_array_equal(first.images[5], new.images[row])


def test_another_run_leaves_nothing_of_the_one_before(source, tmp_path):
    out = tmp_path / "data"
    embed_source(source, out, workers=1)
    embed_source(source, out, split="web", workers=1)
    assert find_splits(out) == ["web"]
    assert json.loads((out / "manifest.json").read_text())["whitening_fitted_on"] == "all splits"


def test_tar_shards(tmp_path, pictures_in):
    names = pictures_in(tmp_path / "pictures", 6)
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, part in enumerate((names[:4], names[4:])):
        members = {}
        for name in part:
            members[name] = (tmp_path / "pictures" / name).read_bytes()
            members[name.replace(".png", ".txt")] = f"caption of {name}".encode()
        tar_of(shards / f"{number}.tar", members)
    write_table(tmp_path / "pictures", {"path": names, "text": [f"caption of {name}" for name in names]})
    embed_source(shards, tmp_path / "a", split="train", workers=1)
    embed_source(tmp_path / "pictures", tmp_path / "b", split="train", workers=1)
    from_tar, from_folder = load_pairs(tmp_path / "a"), load_pairs(tmp_path / "b")
    assert from_tar.texts == from_folder.texts
    np.testing.assert_array_equal(from_tar.images, from_folder.images)
    assert from_tar.image_ids[4] == "1.tar/photo-4.png"


def test_errors_name_the_remedy(source, tmp_path, pictures_in):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="new or empty folder"):
        embed_source(source, tmp_path / "taken")
    with pytest.raises(DataError, match="no whitening"):
        embed_source(source, tmp_path / "data", like=source)
    with pytest.raises(TruepairError, match="cannot be the name of a split"):
        embed_source(source, tmp_path / "data", split="../up", workers=1)
    (source / "captions.csv").write_text("path,text\nabsent.png,one\n")
    with pytest.raises(DataError, match="missing file"):
        embed_source(source, tmp_path / "data", workers=1)
    (source / "captions.csv").write_text("path,text\n,one\n")
    with pytest.raises(DataError, match="no path"):
        embed_source(source, tmp_path / "other", workers=1)


def test_named_columns(source, tmp_path):
    table = pl.read_csv(source / "captions.csv")
    table = table.rename({"path": "where", "text": "what", "split": "part"})
    table.write_parquet(source / "mine.parquet")
    names = Names(path_column="where", text_column="what", split_column="part")
    embed_source(source / "mine.parquet", tmp_path / "a", names=names, workers=1)
    embed_source(source / "captions.csv", tmp_path / "b", workers=1)
    given, usual = bytes_of(tmp_path / "a"), bytes_of(tmp_path / "b")
    for name in ("train_ims.npy", "train_caps.txt", "test_ims.npy", "whitening.npz"):
        assert given[name] == usual[name]
