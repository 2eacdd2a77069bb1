import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from truepair.errors import DataError
from truepair.pairs.vocabulary import Vocabulary

TEXTS = ["A dog runs.", "a dog, a cat", "The dog sleeps .", "Dog and cat can't swim."]


def published(texts, threshold):
    """Vocabulary building as the published codes do it, written out."""
    counter = Counter()
    for text in texts:
        counter.update(NLTKWordTokenizer().tokenize(text.lower()))
    word2idx = {}
    for word in ["<pad>", "<start>", "<end>", "<unk>"] + [w for w, n in counter.items() if n >= threshold]:
        if word not in word2idx:
            word2idx[word] = len(word2idx)
    return word2idx


@pytest.mark.parametrize("threshold", [1, 2, 4])
def test_numbers_are_the_published_ones(threshold):
    assert dict(Vocabulary.build(TEXTS, threshold).numbers) == published(TEXTS, threshold)


def test_words_must_occur_four_times_by_default():
    vocabulary = Vocabulary.build(TEXTS)
    assert "dog" in vocabulary
    assert "cat" not in vocabulary
    assert vocabulary["cat"] == vocabulary["<unk>"] == 3


def test_a_caption_cannot_smuggle_in_a_special_word():
    vocabulary = Vocabulary({"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 4})
    assert vocabulary.encode(["<end> dog"])[0].tolist() == [1, 3, 3, 3, 4, 2]


def test_the_file_has_the_published_form_and_comes_back(tmp_path):
    vocabulary = Vocabulary.build(TEXTS, 1)
    vocabulary.write(tmp_path / "vocab.json")
    content = json.loads((tmp_path / "vocab.json").read_text())
    assert set(content) == {"word2idx", "idx2word", "idx"}
    assert content["idx"] == len(content["word2idx"]) == len(vocabulary)
    assert content["idx2word"]["0"] == "<pad>"
    assert Vocabulary.read(tmp_path / "vocab.json") == vocabulary


def test_a_file_with_more_special_words_is_read(tmp_path):
    # CRCL's files have a mask token too.
    words = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "<mask>": 4, "dog": 5}
    (tmp_path / "v.json").write_text(json.dumps({"word2idx": words, "idx2word": {}, "idx": 6}))
    vocabulary = Vocabulary.read(tmp_path / "v.json")
    assert vocabulary.encode(["Dog, cat"])[0].tolist() == [1, 5, 3, 3, 2]
    assert len(vocabulary) == 6
    assert vocabulary.word(4) == "<mask>"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not a JSON file"),
        ("[]", "no 'word2idx'"),
        ('{"word2idx": {"<start>": "1"}}', "no 'word2idx'"),
        ('{"word2idx": {"<start>": -1}}', "no 'word2idx'"),
        ('{"word2idx": {"<start>": 1, "<end>": 1, "<unk>": 3}}', "share a number"),
        ('{"word2idx": {"<start>": 1, "<end>": 2}}', "needs <unk>"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path, content, complaint):
    (tmp_path / "v.json").write_text(content)
    with pytest.raises(DataError, match=complaint) as caught:
        Vocabulary.read(tmp_path / "v.json")
    assert "v.json" in str(caught.value)


def test_a_missing_file_is_an_error_for_people(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        Vocabulary.read(tmp_path / "nothing.json")


@given(
    st.lists(st.lists(st.sampled_from(["dog", "cat", "a", "zebra", "can't", "."]), max_size=6), min_size=1)
)
def test_encoding_is_start_words_end(word_lists):
    texts = [" ".join(words) for words in word_lists]
    vocabulary = Vocabulary.build(TEXTS, 1)
    encoded = vocabulary.encode(texts)
    for row, text in enumerate(texts):
        words = NLTKWordTokenizer().tokenize(text.lower())
        assert encoded[row].tolist() == [1, *(vocabulary[word] for word in words), 2]
        assert vocabulary.decode(encoded[row]) == [w if w in vocabulary else "<unk>" for w in words]
    assert encoded.lengths.tolist() == [len(encoded[row]) for row in range(len(texts))]
    assert len(encoded) == len(texts)


@given(st.lists(st.integers(0, 9), max_size=12))
def test_padding_equals_a_loop(rows):
    vocabulary = Vocabulary.build(TEXTS, 1)
    encoded = vocabulary.encode([" ".join(["dog"] * n) for n in range(10)])
    tokens, lengths = encoded.padded(np.array(rows, dtype=np.int64))
    longest = max((len(encoded[row]) for row in rows), default=0)
    assert tokens.shape == (len(rows), longest)
    assert tokens.dtype == lengths.dtype == torch.int64
    for entry, row in enumerate(rows):
        expected = [*encoded[row].tolist(), *[0] * (longest - len(encoded[row]))]
        assert tokens[entry].tolist() == expected
        assert lengths[entry] == len(encoded[row])


def test_encoded_texts_have_an_end():
    encoded = Vocabulary.build(TEXTS, 1).encode(["dog", "cat"])
    assert encoded[-1].tolist() == encoded[1].tolist()
    with pytest.raises(IndexError):
        encoded[2]
    assert [list(numbers) for numbers in encoded] == [encoded[0].tolist(), encoded[1].tolist()]
