"""What is written is what load_pairs reads: the same pairs, ids, pictures and features, in every layout."""

import json

import numpy as np
import polars as pl
import pytest

from truepair.audit.export import Selection, write_data
from truepair.errors import DataError
from truepair.pairs.readers import find_splits, load_pairs

IMAGES, PER_IMAGE = 6, 3


def features(seed=0, images=IMAGES):
    return np.random.default_rng(seed).normal(size=(images, 2, 4)).astype(np.float16)


def captions(count):
    return [f"caption {row} says <b>&amp; ünï" for row in range(count)]


def precomputed(folder):
    for seed, split in enumerate(("train", "dev")):
        np.save(folder / f"{split}_ims.npy", features(seed))
        (folder / f"{split}_caps.txt").write_text("\n".join(captions(IMAGES * PER_IMAGE)) + "\n")
        np.save(folder / f"{split}_region_counts.npy", np.array([2, 1, 2, 2, 1, 2]))
    return folder


def embedded(folder):
    """As `truepair embed` writes it: a table of pairs, images with any number of captions, pictures."""
    np.save(folder / "train_ims.npy", features())
    np.save(folder / "dev_ims.npy", features(1))
    (folder / "pictures").mkdir()
    for split in ("train", "dev"):
        rows = [0, 0, 1, 2, 3, 3, 3, 4, 5]
        (folder / f"{split}_caps.txt").write_text("\n".join(captions(len(rows))) + "\n")
        pl.DataFrame(
            {
                "pair_id": [f"{split}p{row}" for row in range(len(rows))],
                "image_id": [f"{split}im{image}" for image in rows],
                "image_row": rows,
                "picture": [f"pictures/{image}.png" for image in rows],
            }
        ).write_parquet(folder / f"{split}_pairs.parquet")
    return folder


def repeated(folder):
    """Every image five times, once for each of its captions."""
    np.save(folder / "train_ims.npy", np.repeat(features(), 5, axis=0))
    (folder / "train_caps.txt").write_text("\n".join(captions(IMAGES * 5)) + "\n")
    return folder


def embeddings(folder):
    np.save(folder / "train_images.npy", features()[:, 0])
    np.save(folder / "train_texts.npy", np.random.default_rng(2).normal(size=(12, 3)).astype(np.float32))
    (folder / "train_texts.txt").write_text("\n".join(captions(12)) + "\n")
    np.save(folder / "dev_images.npy", features(1)[:, 0])
    np.save(folder / "dev_texts.npy", np.ones((6, 3), np.float32))
    return folder


def table(folder, suffix):
    np.save(folder / "clip.npy", features())
    frame = pl.DataFrame(
        {
            "alt": captions(10),
            "image_row": [0, 1, 2, 3, 4, 5, 0, 1, 2, 3],
            "url": [f"http://example.org/{row}" for row in range(10)],
            "split": ["train"] * 4 + ["dev"] * 2 + ["train"] * 4,
            "path": [f"p/{row}.jpg" for row in [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]],
        }
    )
    path = folder / f"pairs{suffix}"
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}[suffix](path)
    (folder / "manifest.json").write_text(json.dumps({"features": "clip.npy", "columns": {"text": "alt"}}))
    return folder


LAYOUTS = {
    "precomputed": precomputed,
    "embedded": embedded,
    "repeated": repeated,
    "embeddings": embeddings,
    "parquet": lambda folder: table(folder, ".parquet"),
    "csv": lambda folder: table(folder, ".csv"),
    "jsonl": lambda folder: table(folder, ".jsonl"),
}


@pytest.fixture(params=LAYOUTS)
def data(request, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return LAYOUTS[request.param](folder)


def choose(pairs, seed=3):
    """Half of the pairs, some of them with another image."""
    generator = np.random.default_rng(seed)
    rows = np.sort(generator.choice(len(pairs), len(pairs) // 2, replace=False))
    image_of = pairs.image_of[rows].copy()
    image_of[::2] = generator.integers(0, pairs.n_images, len(image_of[::2]))
    return Selection(rows, image_of)


def shown(pairs, row):
    """What a pair is, without the row numbers."""
    image = pairs.image_of[row]
    picture = None if pairs.picture_paths is None else pairs.picture_paths[image].split("/")[-1]
    vector = None if pairs.text_vectors is None else pairs.text_vectors[row].tolist()
    text = pairs.texts[row] if len(pairs.texts) else None
    return pairs.ids[row], text, vector, pairs.images[image].tolist(), picture


@pytest.mark.parametrize("noise", [None, 0.5])
def test_the_chosen_pairs_come_back(data, tmp_path, noise):
    pairs = load_pairs(data, "train", noise=noise)
    chosen = choose(pairs)
    back = load_pairs(write_data(tmp_path / "out", pairs, chosen), "train")
    assert len(back) == len(chosen)
    for new, (row, image) in enumerate(zip(chosen.rows, chosen.image_of, strict=True)):
        own = shown(pairs, row)
        moved = pairs.images[image].tolist()
        picture = None if pairs.picture_paths is None else pairs.picture_paths[image].split("/")[-1]
        assert shown(back, new) == (*own[:3], moved, picture)
        if pairs.true_image_of is not None:
            true_image = back.images[back.true_image_of[new]]
            assert np.array_equal(true_image, pairs.images[pairs.true_image_of[row]])
        if pairs.region_counts is not None:
            assert back.region_counts[back.image_of[new]] == pairs.region_counts[image]
    if pairs.picture_paths is not None:
        image = int(back.image_of[0])
        own = pairs.picture_paths[chosen.image_of[0]]
        assert (tmp_path / "out").joinpath(back.picture_paths[image]).resolve() == (data / own).resolve()


def test_other_splits_come_along_unchanged(data, tmp_path):
    pairs = load_pairs(data, "train")
    out = write_data(tmp_path / "deeper" / "out", pairs, choose(pairs))
    assert find_splits(out) == find_splits(data)
    for split in find_splits(data)[1:]:
        before, after = load_pairs(data, split), load_pairs(out, split)
        assert [shown(after, row) for row in range(len(after))] == [
            shown(before, row) for row in range(len(before))
        ]


def test_features_are_not_copied(data, tmp_path):
    pairs = load_pairs(data, "train")
    out = write_data(tmp_path / "out", pairs, choose(pairs))
    originals = {path.stat().st_ino for path in data.glob("*.npy")}
    image_files = [path for path in out.glob("*.npy") if "texts" not in path.name]
    assert image_files
    assert {path.stat().st_ino for path in image_files} <= originals


def test_extra_columns_of_a_table_stay(tmp_path):
    pairs = load_pairs(table(tmp_path, ".csv"), "train")
    out = write_data(tmp_path / "out", pairs, Selection(np.array([1, 6]), np.array([1, 4])))
    frame = pl.read_csv(out / "pairs.csv", infer_schema=False)
    assert frame["url"].to_list() == [f"http://example.org/{row}" for row in (1, 4, 5, 8)]
    assert frame["image_row"].to_list() == ["1", "4", "5", "4"]
    assert frame["path"].to_list()[3] == "../p/4.jpg"


def test_writing_again_replaces_the_old_result(data, tmp_path):
    pairs = load_pairs(data, "train")
    write_data(tmp_path / "out", pairs, choose(pairs))
    (tmp_path / "out" / "notes.md").write_text("mine")
    write_data(tmp_path / "out", pairs, Selection(np.array([2]), pairs.image_of[[2]]))
    assert load_pairs(tmp_path / "out").ids == [pairs.ids[2]]
    assert (tmp_path / "out" / "notes.md").read_text() == "mine"
    assert not list((tmp_path / "out").glob(".*"))


def test_an_interrupted_result_is_written_over(data, tmp_path, monkeypatch):
    pairs = load_pairs(data, "train")
    with monkeypatch.context() as patched:
        patched.setattr("truepair.audit.export.json.dumps", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_data(tmp_path / "out", pairs, choose(pairs))
    out = write_data(tmp_path / "out", pairs, Selection(np.array([2]), pairs.image_of[[2]]))
    assert load_pairs(out).ids == [pairs.ids[2]]


def test_foreign_folders_and_the_data_itself_are_refused(data, tmp_path):
    pairs = load_pairs(data, "train")
    before = {path: path.read_bytes() for path in data.iterdir() if path.is_file()}
    with pytest.raises(DataError, match="the data itself"):
        write_data(data, pairs, choose(pairs))
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text('{"made_by": "truepair 0.1.0 embed"}')
    with pytest.raises(DataError, match="something else"):
        write_data(other, pairs, choose(pairs))
    assert {path: path.read_bytes() for path in data.iterdir() if path.is_file()} == before
    assert [path.name for path in other.iterdir()] == ["manifest.json"]


def test_a_line_feed_in_a_text_does_not_move_the_captions_below_it(tmp_path):
    np.save(tmp_path / "train_ims.npy", features(images=2))
    (tmp_path / "train_caps.tsv").write_text('a\t"one\ntwo"\nb\tthree\n')
    pairs = load_pairs(tmp_path, "train")
    out = write_data(tmp_path / "out", pairs, Selection(np.array([0, 1]), np.array([0, 1])))
    assert load_pairs(out).texts == ["one two", "three"]
