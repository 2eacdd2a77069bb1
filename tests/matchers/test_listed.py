"""Listed pairs scored image by image."""

import pytest
import torch

from truepair.matchers import listed
from truepair.matchers.base import TextCodes
from truepair.matchers.registry import MATCHERS

ALIGNMENT = [name for name in MATCHERS if name in ("sgr", "saf", "sgraf")]


def many_pairs(batch, count, seed=3):
    """Pairs in any order, some of them twice."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, len(batch.regions), (count,), generator=generator)
    return rows, torch.randint(0, len(batch.tokens), (count,), generator=generator)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("count", [150, 600])
def test_listed_pairs_equal_the_matrix_without_gradients(name, make_matcher, make_batch, count, exact):
    matcher, batch = make_matcher(name), make_batch(name)
    if exact:
        matcher.double()
        batch.regions = batch.regions.double()
    rows, columns = many_pairs(batch, count)
    with torch.no_grad():
        images, texts = batch.codes(matcher)
        assert listed.pays(images, rows)
        found = matcher.pair_logits(images, texts, rows, columns)
        whole = matcher.logits(images, texts)
    torch.testing.assert_close(found, whole[rows, columns], atol=1e-12 if exact else 1e-6, rtol=0)


@pytest.mark.parametrize("name", ALIGNMENT, indirect=True)
@pytest.mark.parametrize("numbers", [1, 2**14])
def test_small_chunks_give_the_same(name, make_matcher, make_batch, numbers, monkeypatch):
    """An image's texts in several parts, and many images in one chunk."""
    matcher, batch = make_matcher(name), make_batch(name, images=5, texts=80)
    rows, columns = torch.arange(400) // 80, torch.arange(400) % 80
    with torch.no_grad():
        images, texts = batch.codes(matcher)
        whole = matcher.logits(images, texts)
        monkeypatch.setattr(listed, "block_numbers", lambda device: numbers)
        found = matcher.pair_logits(images, texts, rows, columns)
    torch.testing.assert_close(found.view(5, 80), whole, atol=1e-6, rtol=0)


def test_every_pair_is_in_one_chunk_with_its_own_words(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (30,), generator=generator)
    # A word says which text it is of and where it stands.
    words = (
        torch.stack([torch.arange(30)[:, None].expand(30, 8), torch.arange(8).expand(30, 8)], dim=-1) + 1.0
    )
    words = words * (torch.arange(8) < lengths[:, None])[..., None]
    texts = TextCodes(words, words[:, 0], lengths)
    rows, columns = many_pairs_of(7, 30, 300, generator)
    monkeypatch.setattr(listed, "block_numbers", lambda device: 500)
    monkeypatch.setattr(listed, "ROUND_WORDS", 16)
    seen = []
    sizes = []
    for chunk in listed.chunks(texts, rows, columns, similarity=4):
        seen += chunk.places.tolist()
        sizes.append(int(chunk.lengths.sum()))
        laid = torch.cat([one.words[: one.count] for one in chunk.images])
        image = torch.cat([torch.full((one.count,), one.image) for one in chunk.images])
        assert all(len(one.words) % 16 == 0 for one in chunk.images)
        for one in chunk.images:
            assert int((one.owners.of_word < one.owners.texts).sum()) == one.count
        for which, where in chunk.by_length():
            for pair, its_words in zip(chunk.places[which].tolist(), where, strict=True):
                text = int(columns[pair])
                assert torch.equal(laid[its_words], words[text, : lengths[text]])
                assert (image[its_words] == rows[pair]).all()
    assert sorted(seen) == list(range(300))
    assert max(sizes) <= 1000  # some words more than 1000 / 4 where one part of an image is larger
    assert len(sizes) > 3


def many_pairs_of(images, texts, count, generator):
    rows = torch.randint(0, images, (count,), generator=generator)
    return rows, torch.randint(0, texts, (count,), generator=generator)


def test_few_texts_an_image_are_scored_pair_by_pair(make_matcher, make_batch):
    matcher, batch = make_matcher("sgr"), make_batch("sgr")
    images, _ = batch.codes(matcher)
    with torch.no_grad():
        assert not listed.pays(images, torch.arange(6).repeat(15))
        assert listed.pays(images, torch.arange(6).repeat(16))
        assert not listed.pays(images, torch.zeros(0, dtype=torch.int64))
    assert not listed.pays(images, torch.arange(6).repeat(16))  # gradients are wanted
