import hashlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from truepair import load_pairs
from truepair.errors import DataError
from truepair.pairs.batch import BatchReader
from truepair.pairs.features import check_finite
from truepair.pairs.readers import find_splits
from truepair.pairs.vocabulary import Vocabulary


@pytest.mark.parametrize("per_image", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_texts_of_an_image_lie_next_to_each_other(precomputed, captions, features, per_image, dtype):
    pairs = load_pairs(precomputed(per_image=per_image, dtype=dtype))
    assert len(pairs) == 6 * per_image
    assert pairs.n_images == 6
    assert pairs.image_of.tolist() == [row // per_image for row in range(len(pairs))]
    assert list(pairs.texts) == captions(6 * per_image)
    assert pairs.images.dtype == dtype
    np.testing.assert_array_equal(pairs.images, features(6, dtype=dtype))
    assert pairs.true_image_of is None
    assert pairs.mismatched is None


def test_features_stay_on_disk(precomputed):
    assert isinstance(load_pairs(precomputed()).images, np.memmap)


def test_ids_differ_and_do_not_change(precomputed):
    folder = precomputed()
    first, second = load_pairs(folder), load_pairs(folder)
    assert first.ids == second.ids
    assert len(set(first.ids)) == 30
    assert len(set(first.image_ids)) == 6


def test_provenance_names_the_files_and_their_contents(precomputed):
    pairs = load_pairs(precomputed())
    assert pairs.provenance.layout == "precomputed"
    names = [source.path.rsplit("/", 1)[1] for source in pairs.provenance.sources]
    assert names == ["train_ims.npy", "train_caps.txt"]
    for source in pairs.provenance.sources:
        assert source.sha256 == hashlib.sha256(Path(source.path).read_bytes()).hexdigest()
    assert pairs.provenance.noise.protocol == "none"


def test_splits_are_found_and_dev_and_val_are_one(precomputed):
    for split in ("test", "dev", "train", "testall"):
        folder = precomputed(split=split)
    assert find_splits(folder) == ["train", "dev", "test", "testall"]
    assert load_pairs(folder, "val").split == "dev"
    assert load_pairs(folder, "testall").split == "testall"
    with pytest.raises(DataError, match=r"no split 'nothing'.*train, dev, test, testall"):
        load_pairs(folder, "nothing")


def test_images_that_are_repeated_five_times_are_taken_once(tmp_path, captions, features):
    images = features(12)
    np.save(tmp_path / "dev_ims.npy", np.repeat(images, 5, axis=0))
    (tmp_path / "dev_caps.txt").write_text("\n".join(captions(60)))
    pairs = load_pairs(tmp_path, "dev")
    assert pairs.n_images == 12
    assert pairs.image_of.tolist() == [row // 5 for row in range(60)]
    np.testing.assert_array_equal(pairs.images, images)
    assert isinstance(pairs.images, np.memmap)


def test_nan_in_repeated_images_is_named_with_its_row_in_the_file(tmp_path, captions, features):
    images = features(12)
    images[7, 0, 0] = np.inf
    np.save(tmp_path / "dev_ims.npy", np.repeat(images, 5, axis=0))
    (tmp_path / "dev_caps.txt").write_text("\n".join(captions(60)))
    pairs = load_pairs(tmp_path, "dev")
    assert pairs.n_images == 12
    with pytest.raises(DataError, match=r"dev_ims\.npy: row 35"):
        check_finite(pairs.images, tmp_path / "dev_ims.npy")
    with pytest.raises(DataError, match=r"dev_ims\.npy: row 35"):
        BatchReader(pairs, Vocabulary.build(pairs.texts))(np.array([0, 36]))


@pytest.mark.parametrize("changed", [1, 4, 59])
def test_one_image_that_differs_makes_the_data_one_to_one(tmp_path, captions, features, changed):
    images = np.repeat(features(12), 5, axis=0)
    images[changed] += 1
    np.save(tmp_path / "dev_ims.npy", images)
    (tmp_path / "dev_caps.txt").write_text("\n".join(captions(60)))
    assert load_pairs(tmp_path, "dev").image_of.tolist() == list(range(60))


def test_one_image_five_times_is_one_image(tmp_path, captions, features):
    np.save(tmp_path / "dev_ims.npy", np.repeat(features(1), 5, axis=0))
    (tmp_path / "dev_caps.txt").write_text("\n".join(captions(5)))
    assert load_pairs(tmp_path, "dev").image_of.tolist() == [0] * 5


def test_constant_features_are_not_taken_for_repeats(tmp_path, captions):
    np.save(tmp_path / "train_ims.npy", np.zeros((20, 2, 3), np.float32))
    (tmp_path / "train_caps.txt").write_text("\n".join(captions(20)))
    assert load_pairs(tmp_path).n_images == 20


@pytest.mark.parametrize(
    ("count", "wanted"), [(29, "5 an image.* 30"), (31, "5 an image.* 30"), (4, "1 an image.* 6")]
)
def test_a_wrong_number_of_captions_is_explained(precomputed, captions, count, wanted):
    folder = precomputed(texts=captions(count))
    with pytest.raises(DataError, match=wanted) as caught:
        load_pairs(folder)
    assert f"train_caps.txt: line {count} is the last" in str(caught.value)
    assert "train_ims.npy" in str(caught.value)


def test_empty_captions_are_refused_or_set_aside(precomputed, captions):
    texts = captions(30)
    texts[7] = texts[23] = " "
    folder = precomputed(texts=texts)
    with pytest.raises(DataError, match="line 8"):
        load_pairs(folder)
    pairs = load_pairs(folder, skip_empty=True)
    kept = [row for row in range(30) if row not in (7, 23)]
    assert list(pairs.texts) == [texts[row] for row in kept]
    assert pairs.image_of.tolist() == [row // 5 for row in kept]
    assert list(pairs.ids) == [f"train-{row}" for row in kept]
    assert pairs.provenance.set_aside == 2


def test_a_published_index_still_fits_when_captions_are_set_aside(precomputed, captions, tmp_path):
    texts = captions(30)
    texts[7] = ""
    index = np.repeat(np.arange(6), 5)
    index[[0, 29]] = index[[29, 0]]
    np.save(tmp_path / "0.1_noise.npy", index)
    pairs = load_pairs(precomputed(texts=texts), noise=tmp_path / "0.1_noise.npy", skip_empty=True)
    assert pairs.image_of.tolist() == [image for row, image in enumerate(index) if row != 7]
    assert np.flatnonzero(pairs.mismatched).tolist() == [0, 28]


def test_only_empty_captions_are_too_few(precomputed):
    with pytest.raises(DataError, match=r"_caps\.txt: all captions are empty"):
        load_pairs(precomputed(texts=[""] * 30), skip_empty=True)


def test_cc152k_has_one_caption_an_image_in_a_tsv(tmp_path, features):
    np.save(tmp_path / "train_ims.npy", features(3))
    (tmp_path / "train_caps.tsv").write_text('70\ta dog\n11\t"a ""cat"""\n12\tthe sea\n')
    pairs = load_pairs(tmp_path)
    assert list(pairs.texts) == ["a dog", 'a "cat"', "the sea"]
    assert list(pairs.image_ids) == ["70", "11", "12"]
    assert pairs.image_of.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("a\nb\nc\n", ["a", "b", "c"]),
        ("a\na\nb\nb\nc\nc\n", ["a", "b", "c"]),
        ("a\na\nc\n", ["train-image-0", "train-image-1", "train-image-2"]),
        ("a\nb\n", ["train-image-0", "train-image-1", "train-image-2"]),
    ],
)
def test_an_ids_file_names_images_if_it_tells_them_apart(precomputed, lines, expected):
    folder = precomputed(images=3, per_image=2)
    (folder / "train_ids.txt").write_text(lines)
    assert list(load_pairs(folder).image_ids) == expected


def test_two_caption_files_are_ambiguous_and_none_is_too_few(precomputed):
    folder = precomputed()
    (folder / "train_caps.tsv").write_text("1\ta dog\n")
    with pytest.raises(DataError, match="both exist"):
        load_pairs(folder)
    (folder / "train_caps.tsv").unlink()
    (folder / "train_caps.txt").unlink()
    with pytest.raises(DataError, match=r"train_caps\.txt"):
        load_pairs(folder)


def test_a_pairs_table_gives_ids_and_pictures(precomputed):
    folder = precomputed(images=2, per_image=2)
    columns = {
        "pair_id": ["p0", "p1", "p2", "p3"],
        "image_id": ["i0", "i0", "i1", "i1"],
        "picture": ["pics/0.jpg", "pics/0.jpg", "/far/1.jpg", "/far/1.jpg"],
    }
    pl.DataFrame(columns).write_parquet(folder / "train_pairs.parquet")
    pairs = load_pairs(folder)
    assert list(pairs.ids) == columns["pair_id"]
    assert list(pairs.image_ids) == ["i0", "i1"]
    assert list(pairs.picture_paths) == [str(folder / "pics/0.jpg"), "/far/1.jpg"]
    assert len(pairs.provenance.sources) == 3


def test_a_pairs_table_may_give_images_any_number_of_texts(precomputed, captions):
    folder = precomputed(images=3, texts=captions(4))
    rows = pl.DataFrame({"image_row": [2, 0, 2, 2], "true_image_row": [2, 0, 1, 2]})
    rows.write_parquet(folder / "train_pairs.parquet")
    pairs = load_pairs(folder)
    assert pairs.image_of.tolist() == [2, 0, 2, 2]
    assert pairs.mismatched.tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"pair_id": ["a"] * 4}, "same pair_id"),
        ({"pair_id": ["a", "b", "c"]}, "3 rows for 4 captions"),
        ({"image_id": ["a", "b", "b", "b"]}, "row 1: image row 0 is called 'b' here and 'a' further up"),
        ({"image_row": [0, 1, 2, 1]}, "row 2: image_row is 2, but the features have 2 rows"),
        ({"image_row": [0, None, 1, 1]}, "row 1: image_row is None"),
        ({"image_row": [0, 0, 1, 1], "true_image_row": [0, -1, 1, 1]}, "row 1: true_image_row is -1"),
    ],
)
def test_a_pairs_table_that_does_not_fit_is_refused(precomputed, columns, complaint):
    folder = precomputed(images=2, per_image=2)
    pl.DataFrame(columns).write_parquet(folder / "train_pairs.parquet")
    with pytest.raises(DataError, match=complaint) as caught:
        load_pairs(folder)
    assert "train_pairs.parquet" in str(caught.value)


def test_region_counts_are_read_and_checked(precomputed):
    folder = precomputed(images=3, regions=4)
    np.save(folder / "train_region_counts.npy", np.array([4, 1, 3]))
    assert load_pairs(folder).region_counts.tolist() == [4, 1, 3]
    np.save(folder / "train_region_counts.npy", np.array([4, 0, 3]))
    with pytest.raises(DataError, match="row 1: an image cannot have 0 of 4 regions"):
        load_pairs(folder)
    np.save(folder / "train_region_counts.npy", np.array([4, 1]))
    with pytest.raises(DataError, match="one whole number an image"):
        load_pairs(folder)
