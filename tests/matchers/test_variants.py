"""What holds for every matcher holds for its variants: order, padding and company change no similarity."""

import pytest
import torch
from torch.nn.functional import pad

from truepair.matchers.registry import MATCHERS

EXACT = {"atol": 1e-6, "rtol": 0}
SLOTS = {"region_norm": "slot", "region_slots": 7}
VARIANTS = [
    *(
        ("scan", {"direction": direction, "aggregation": aggregation})
        for direction in ("t2i", "i2t")
        for aggregation in ("lse", "mean", "max", "sum")
        if (direction, aggregation) != ("t2i", "lse")  # the default
    ),
    ("scan", {"smooth": 20.0, "lse_weight": 2.0}),
    ("scan", {"bidirectional": False, "layers": 2}),
    ("sgr", {"steps": 1}),
    ("sgr", {"bidirectional": False, "layers": 2}),
    *((name, SLOTS) for name in ("sgr", "saf", "sgraf")),
    ("vse_infty", {"padding_in_statistics": True, "temperature": 1.0}),
    ("vse_infty", {"layers": 2, "image_hidden": 5}),
    ("projection", {"hidden": None}),
]


def title(variant):
    name, options = variant
    return "-".join([name, *(f"{value}" for value in options.values())])


@pytest.fixture(params=VARIANTS, ids=map(title, VARIANTS))
def variant(request):
    return request.param


@pytest.fixture
def matcher(variant, make_matcher):
    return make_matcher(variant[0], **variant[1])


@pytest.fixture
def batch(variant, make_batch):
    return make_batch(variant[0])


@pytest.fixture
def similarity(matcher, batch):
    with torch.no_grad():
        return matcher.similarity(*batch.codes(matcher))


def test_it_is_a_variant(variant, make_matcher, batch, similarity):
    plain = make_matcher(variant[0])
    assert not torch.allclose(plain.similarity(*batch.codes(plain)), similarity, atol=1e-4)
    assert similarity.std() > 1e-4


def test_order_of_images_and_texts(matcher, batch, similarity):
    rows, columns = torch.randperm(len(batch.regions)), torch.randperm(len(batch.tokens))
    images = matcher.encode_images(batch.regions[rows], batch.mask[rows])
    texts = matcher.encode_texts(batch.tokens[columns], batch.lengths[columns])
    torch.testing.assert_close(matcher.similarity(images, texts), similarity[rows][:, columns], **EXACT)


def test_padding(variant, matcher, batch, similarity):
    more = 0 if variant[1] == SLOTS else 3  # slots are as many as they are
    regions = pad(batch.regions.masked_fill(~batch.mask[..., None], 1e3), (0, 0, 0, more), value=1e3)
    images = matcher.encode_images(regions, pad(batch.mask, (0, more)))
    tokens = batch.tokens
    if MATCHERS[variant[0]].texts == "words":
        past = torch.arange(tokens.shape[1])[None] >= batch.lengths[:, None]
        tokens = pad(tokens.masked_fill(past, 3), (0, 4), value=5)
    texts = matcher.encode_texts(tokens, batch.lengths)
    torch.testing.assert_close(matcher.similarity(images, texts), similarity, **EXACT)


def test_company_and_listed_pairs(matcher, batch, similarity):
    rows, columns = torch.tensor([0, 1, 5, 5]), torch.tensor([2, 8, 0, 3])
    pairs = matcher.pair_similarity(*batch.codes(matcher), rows, columns)
    torch.testing.assert_close(pairs, similarity[rows, columns], **EXACT)
    for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
        image = matcher.encode_images(batch.regions[i : i + 1], batch.mask[i : i + 1])
        text = matcher.encode_texts(batch.tokens[j : j + 1], batch.lengths[j : j + 1])
        torch.testing.assert_close(matcher.similarity(image, text)[0, 0], similarity[i, j], **EXACT)
