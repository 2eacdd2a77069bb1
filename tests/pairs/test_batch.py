from dataclasses import replace

import numpy as np
import pytest
import torch

from truepair import load_pairs
from truepair.errors import DataError, TruepairError
from truepair.pairs.batch import BatchReader
from truepair.pairs.vocabulary import Vocabulary


@pytest.fixture
def pairs(precomputed):
    return load_pairs(precomputed(images=10), noise=0.5)


@pytest.fixture
def vocabulary(pairs):
    return Vocabulary.build(pairs.texts)


def test_entry_by_entry_a_batch_is_its_pairs(pairs, vocabulary):
    rows = np.array([3, 49, 0, 4, 3])
    batch = BatchReader(pairs, vocabulary)(rows)
    assert len(batch) == 5
    assert batch.regions.dtype == torch.float32
    assert batch.mask is None
    assert batch.pairs.dtype == batch.images.dtype == batch.tokens.dtype == batch.lengths.dtype == torch.int64
    for entry, row in enumerate(rows):
        assert batch.pairs[entry] == row
        assert batch.images[entry] == pairs.image_of[row]
        image = pairs.images[pairs.image_of[row]]
        np.testing.assert_array_equal(batch.regions[entry], image.astype(np.float32))
        expected = vocabulary.encode([pairs.texts[row]])[0]
        assert batch.lengths[entry] == len(expected)
        assert batch.tokens[entry, : len(expected)].tolist() == expected.tolist()
        assert not batch.tokens[entry, len(expected) :].any()


def test_region_counts_become_a_mask(pairs, vocabulary):
    counts = np.array([4, 1, 2, 3, 4, 4, 1, 1, 2, 3])
    batch = BatchReader(replace(pairs, region_counts=counts), vocabulary)(np.array([0, 20, 49]))
    for entry, image in enumerate(batch.images.tolist()):
        assert batch.mask[entry].tolist() == [region < counts[image] for region in range(4)]


def test_lengths_count_start_and_end(pairs, vocabulary):
    reader = BatchReader(pairs, vocabulary)
    assert reader.lengths.tolist() == [len(text.split()) + 2 for text in pairs.texts]


def test_a_batch_moves_as_a_whole(pairs, vocabulary):
    reader = BatchReader(replace(pairs, region_counts=np.full(10, 2)), vocabulary)
    moved = reader(np.arange(3)).to("meta")
    assert {value.device.type for value in vars(moved).values()} == {"meta"}
    assert reader(np.arange(3)).to("cpu").mask is not None
    assert BatchReader(pairs, vocabulary)(np.arange(3)).to("meta").mask is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_stop_the_batch(tmp_path, precomputed, features, value):
    folder = precomputed(images=10)
    array = features(10)
    array[6, 2, 1] = value
    np.save(folder / "train_ims.npy", array)
    pairs = load_pairs(folder)
    reader = BatchReader(pairs, Vocabulary.build(pairs.texts))
    reader(np.arange(30))
    with pytest.raises(DataError, match=r"train_ims\.npy: row 6: the features hold"):
        reader(np.array([2, 33, 5]))


def test_large_features_are_not_taken_for_infinity(pairs, vocabulary):
    huge = np.full((10, 4, 6), np.finfo(np.float32).max, np.float32)
    assert torch.isfinite(BatchReader(replace(pairs, images=huge), vocabulary)(np.arange(9)).regions).all()


def test_text_vectors_take_the_place_of_tokens(tmp_path):
    generator = np.random.default_rng(0)
    images, texts = generator.normal(size=(3, 5)), generator.normal(size=(6, 4)).astype(np.float16)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "texts.npy", texts)
    reader = BatchReader(load_pairs(tmp_path), None)
    batch = reader(np.array([5, 0]))
    assert batch.tokens.dtype == torch.float32
    np.testing.assert_array_equal(batch.tokens, texts[[5, 0]].astype(np.float32))
    np.testing.assert_array_equal(batch.regions[:, 0], images[[2, 0]].astype(np.float32))
    assert batch.lengths.tolist() == [1, 1]
    assert reader.lengths.tolist() == [1] * 6
    texts[4, 1] = np.nan
    np.save(tmp_path / "texts.npy", texts)
    with pytest.raises(DataError, match=r"texts\.npy: row 4"):
        BatchReader(load_pairs(tmp_path), None)(np.array([1, 4]))


def test_texts_and_vocabulary_must_fit(pairs, vocabulary, tmp_path):
    with pytest.raises(TruepairError, match="a vocabulary is needed"):
        BatchReader(pairs, None)
    with pytest.raises(TruepairError, match="matcher over embeddings"):
        BatchReader(replace(pairs, texts=[], text_vectors=np.ones((50, 2))), vocabulary)
