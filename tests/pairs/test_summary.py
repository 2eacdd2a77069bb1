import numpy as np
import polars as pl
import pytest

from truepair import load_pairs
from truepair.errors import DataError
from truepair.pairs.summary import summarize


def test_counts_are_those_of_a_loop(precomputed, captions):
    texts = [*captions(28, seed=3), "a dog .", "a dog ."]
    summary = summarize(load_pairs(precomputed(texts=texts)), min_count=2)
    words = [text.split() for text in texts]
    flat = [word for entry in words for word in entry]
    repeated = {text for text in texts if texts.count(text) > 1}
    assert summary.pairs == 30
    assert summary.images == 6
    assert summary.texts_per_image == (5, 5)
    assert summary.feature_shape == (6, 4, 6)
    assert summary.feature_dtype == "float16"
    assert summary.texts.distinct == len(set(texts))
    assert summary.texts.repeated == len(repeated)
    assert summary.texts.repeated_pairs == sum(text in repeated for text in texts)
    assert summary.texts.distinct_words == len(set(flat))
    assert summary.texts.vocabulary == 4 + sum(flat.count(word) >= 2 for word in set(flat))
    assert summary.texts.tokens_mean == pytest.approx(len(flat) / 30)
    assert summary.texts.tokens_shortest == min(map(len, words))
    assert summary.texts.tokens_longest == max(map(len, words))


def test_known_truth_gives_a_measured_share_without_added_noise(precomputed):
    folder = precomputed(images=2, per_image=2)
    pl.DataFrame({"image_row": [0, 1, 1, 1], "true_image_row": [0, 0, 1, 1]}).write_parquet(
        folder / "train_pairs.parquet"
    )
    summary = summarize(load_pairs(folder))
    assert summary.noise["measured"] == 0.25
    assert summary.texts_per_image == (1, 3)


def test_unknown_truth_stays_unknown(precomputed):
    assert summarize(load_pairs(precomputed())).noise["measured"] is None


def test_data_without_texts_has_no_text_summary(tmp_path):
    np.save(tmp_path / "images.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "texts.npy", np.ones((4, 3), np.float32))
    summary = summarize(load_pairs(tmp_path))
    assert summary.texts is None
    assert summary.text_vectors == (4, 3)
    np.save(tmp_path / "texts.npy", np.array([[1, 1, 1]] * 3 + [[1, np.nan, 1]]))
    with pytest.raises(DataError, match=r"texts\.npy: row 3"):
        summarize(load_pairs(tmp_path))
