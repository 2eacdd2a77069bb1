import json

import numpy as np
import polars as pl
import pytest

from truepair import load_pairs
from truepair.errors import DataError
from truepair.pairs.readers import find_splits

ROWS = {
    "pair_id": ["007", "008", "009", "010"],
    "text": ["a dog", " ein Hund ", "a \u2028cat", "the sea, again"],
    "image_row": [2, 0, 2, 1],
    "image_id": ["c", "a", "c", "b"],
    "picture": ["c.jpg", "a.jpg", "c.jpg", "b.jpg"],
    "split": ["train", "train", "dev", "dev"],
}


@pytest.fixture
def write(tmp_path, features):
    def table(suffix=".parquet", rows=ROWS, name="pairs", features_name="images.npy"):
        np.save(tmp_path / features_name, features(3))
        path = tmp_path / f"{name}{suffix}"
        frame = pl.DataFrame(rows)
        if suffix == ".parquet":
            frame.write_parquet(path)
        elif suffix == ".jsonl":
            frame.write_ndjson(path)
        else:
            frame.write_csv(path, separator="\t" if suffix == ".tsv" else ",")
        return path

    return table


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".jsonl"])
def test_every_kind_of_table_says_the_same(write, suffix):
    path = write(suffix)
    pairs = load_pairs(path, "train")
    assert list(pairs.texts) == ["a dog", "ein Hund"]
    assert list(pairs.ids) == ["007", "008"]
    assert pairs.image_of.tolist() == [2, 0]
    assert list(pairs.image_ids) == ["a", "b", "c"]
    assert list(pairs.picture_paths) == [str(path.parent / f"{name}.jpg") for name in "abc"]
    assert pairs.provenance.layout == "table"
    assert list(load_pairs(path, "val").texts) == ["a \u2028cat", "the sea, again"]


def test_the_folder_of_a_table_will_do(write):
    path = write(".csv")
    assert find_splits(path.parent) == ["train", "dev"]
    assert len(load_pairs(path.parent, "dev")) == 2
    write(".parquet")
    with pytest.raises(DataError, match="both exist"):
        load_pairs(path.parent)


def test_a_table_without_splits_and_ids_is_all_training_data(write):
    path = write(rows={"caption": ["one", "two"], "image_row": [1, 1]})
    pairs = load_pairs(path)
    assert list(pairs.ids) == ["train-0", "train-1"]
    assert pairs.picture_paths is None
    with pytest.raises(DataError, match=r"no split 'test'.*It has: train"):
        load_pairs(path, "test")


def test_features_are_found_by_name_by_manifest_or_by_hand(write, features):
    path = write(name="mine", features_name="mine_ims.npy")
    assert load_pairs(path).n_images == 3
    np.save(path.with_name("other.npy"), features(5))
    assert load_pairs(path, features=path.with_name("other.npy")).n_images == 5
    path.with_name("manifest.json").write_text('{"features": "other.npy"}')
    assert load_pairs(path).n_images == 5
    path.with_name("manifest.json").unlink()
    path.with_name("mine_ims.npy").unlink()
    with pytest.raises(DataError, match=r"neither mine_ims\.npy nor images\.npy"):
        load_pairs(path)


def test_the_manifest_renames_columns(write):
    path = write(rows={"Alt-Text": ["one", "two"], "feature": [1, 0]})
    path.with_name("manifest.json").write_text(
        json.dumps({"columns": {"text": "Alt-Text", "image_row": "feature"}})
    )
    pairs = load_pairs(path)
    assert list(pairs.texts) == ["one", "two"]
    assert pairs.image_of.tolist() == [1, 0]
    path.with_name("manifest.json").write_text('{"columns": {"text": "nothing"}}')
    with pytest.raises(DataError, match=r"no column 'nothing'.*Alt-Text, feature"):
        load_pairs(path)
    path.with_name("manifest.json").write_text('{\n"columns": }')
    with pytest.raises(DataError, match=r"manifest\.json: line 2"):
        load_pairs(path)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ({"text": ["a"]}, "no column 'image_row'"),
        ({"image_row": [1]}, "no column 'text'"),
        ({"text": ["a", ""], "image_row": [1, 1]}, "row 1: the text is empty.*--skip-empty"),
        ({"text": ["a", None], "image_row": [1, 1]}, "row 1: the text is empty"),
        ({"text": ["a", "b"], "image_row": [1, 3]}, "row 1: image_row is 3, but the features have 3 rows"),
        ({"text": ["a", "b"], "image_row": ["1", "x"]}, "row 1: image_row is 'x'"),
        ({"text": ["a", "b"], "image_row": [0.0, 0.5]}, "row 1: image_row is 0.5"),
        ({"text": ["a"], "image_row": [1], "pair_id": [None]}, "row 0: pair_id is missing"),
        ({"text": [["a"]], "image_row": [1]}, "text holds List"),
        ({"text": ["a"], "image_row": [[1]]}, "image_row holds List"),
        ({"text": ["a"], "image_row": [True]}, "image_row holds Boolean"),
        ({"text": [], "image_row": []}, "the table has no rows"),
    ],
)
def test_what_is_wrong_is_named_with_its_row(write, rows, complaint):
    path = write(rows=rows)
    with pytest.raises(DataError, match=complaint) as caught:
        load_pairs(path)
    assert str(path) in str(caught.value)


def test_empty_texts_can_be_set_aside(write):
    pairs = load_pairs(write(rows={"text": ["a", None, "c"], "image_row": [1, 1, 2]}), skip_empty=True)
    assert list(pairs.ids) == ["train-0", "train-2"]
    assert pairs.provenance.set_aside == 1


def test_latin_1_and_broken_files_are_explained(tmp_path, features):
    np.save(tmp_path / "images.npy", features(3))
    (tmp_path / "pairs.csv").write_bytes("text,image_row\na dog,1\nmang\xe9,2\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"line 3.*iconv"):
        load_pairs(tmp_path)
    (tmp_path / "pairs.csv").unlink()
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match="cannot be read"):
        load_pairs(tmp_path)
    (tmp_path / "pairs.parquet").unlink()
    (tmp_path / "pairs.jsonl").write_text('{"text": "a"\n')
    with pytest.raises(DataError, match="cannot be read"):
        load_pairs(tmp_path)
    with pytest.raises(DataError, match="not a table of pairs"):
        load_pairs(tmp_path / "images.npy")
