import numpy as np
import pytest

from truepair import load_pairs
from truepair.errors import DataError
from truepair.pairs.readers import find_splits


@pytest.fixture
def write(tmp_path):
    def arrays(images=4, texts=8, prefix=""):
        generator = np.random.default_rng(0)
        np.save(tmp_path / f"{prefix}images.npy", generator.normal(size=(images, 5)).astype(np.float32))
        np.save(tmp_path / f"{prefix}texts.npy", generator.normal(size=(texts, 3)).astype(np.float16))
        return tmp_path

    return arrays


def test_two_arrays_are_pairs(write):
    folder = write()
    pairs = load_pairs(folder)
    assert pairs.images.shape == (4, 1, 5)
    assert pairs.text_vectors.shape == (8, 3)
    assert pairs.text_vectors.dtype == np.float16
    assert isinstance(pairs.text_vectors, np.memmap)
    assert pairs.image_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(pairs.texts) == 0
    assert pairs.provenance.layout == "embeddings"
    assert find_splits(folder) == ["train"]


def test_splits_have_prefixes(write):
    write(prefix="test_")
    folder = write(prefix="train_")
    assert find_splits(folder) == ["train", "test"]
    assert load_pairs(folder, "test").split == "test"


def test_texts_may_lie_beside_their_vectors(write):
    folder = write()
    (folder / "texts.txt").write_text("".join(f"text {row}\n" for row in range(8)))
    assert load_pairs(folder).texts[3] == "text 3"
    (folder / "texts.txt").write_text("one\ntwo\n")
    with pytest.raises(
        DataError, match=r"texts\.txt: line 2 is the last: there are 2 texts for the 8 vectors"
    ):
        load_pairs(folder)
    (folder / "texts.txt").write_text("".join(f"text {row}\n" if row - 2 else "\n" for row in range(8)))
    with pytest.raises(DataError, match="line 3"):
        load_pairs(folder)
    pairs = load_pairs(folder, skip_empty=True)
    assert len(pairs) == len(pairs.text_vectors) == 7


def test_a_wrong_number_of_texts_is_explained(write):
    with pytest.raises(DataError, match=r"texts\.npy: row 8 is the last: there are 9 texts for the 4 images"):
        load_pairs(write(texts=9))
