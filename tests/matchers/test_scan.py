"""SCAN against recorded numbers of the published code."""

import pytest
import torch

from truepair.matchers.base import ImageCodes, TextCodes
from truepair.matchers.encoders import mean_over
from truepair.matchers.scan import SCAN, SCANConfig, region_attention

NAMES = {"lse": "LogSumExp", "mean": "Mean", "max": "Max", "sum": "Sum"}


def scan(**options) -> SCAN:
    return SCAN(SCANConfig(image_width=4, vocabulary_size=5, word_width=3, embedding=24, **options)).eval()


@pytest.fixture
def recorded(oracle):
    return {name: torch.tensor(value) for name, value in oracle("scan").items()}


@pytest.fixture
def codes(recorded):
    images, captions = recorded["images"], recorded["captions"]
    return ImageCodes(images, images.mean(1)), TextCodes(captions, captions.mean(1), recorded["lengths"])


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("aggregation", list(NAMES))
def test_similarities(recorded, codes, direction, aggregation):
    matcher = scan(direction=direction, aggregation=aggregation)
    expected = recorded[f"{direction}_{NAMES[aggregation]}"]
    torch.testing.assert_close(matcher.similarity(*codes), expected, atol=1e-5, rtol=0)
    n, m = expected.shape
    rows, columns = torch.arange(n).repeat_interleave(m), torch.arange(m).repeat(n)
    pairs = matcher.pair_similarity(*codes, rows, columns)
    torch.testing.assert_close(pairs, expected.flatten(), atol=1e-5, rtol=0)


def test_attention_and_contexts_of_a_text(recorded, codes):
    images, texts = codes
    words = texts.words[0, : recorded["lengths"][0]]
    weights = region_attention((images.regions @ words.T)[:, :, None], smooth=9.0)[:, :, 0]
    torch.testing.assert_close(weights, recorded["t2i_cap0_attn"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        weights.mT @ images.regions, recorded["t2i_cap0_context"], atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("maximum", [0, 1])
def test_loss_on_these_similarities(recorded, codes, oracle_settings, maximum):
    settings = oracle_settings("scan")
    size = settings["loss_batch"]
    similarity = scan(aggregation="mean").similarity(*codes)[:size, :size]
    hinge = [
        (settings["margin"] + similarity - similarity.diagonal()[:, None]).clamp_min(0),
        (settings["margin"] + similarity - similarity.diagonal()[None]).clamp_min(0),
    ]
    costs = [h.fill_diagonal_(0) for h in hinge]
    loss = costs[0].amax(1).sum() + costs[1].amax(0).sum() if maximum else costs[0].sum() + costs[1].sum()
    torch.testing.assert_close(loss, recorded[f"loss_t2i_Mean_maxviolation{maximum}"], atol=0, rtol=1e-5)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("aggregation", list(NAMES))
def test_masked_regions_count_for_nothing(codes, direction, aggregation):
    """The same similarities whether regions are masked or not there at all."""
    matcher = scan(direction=direction, aggregation=aggregation)
    images, texts = codes
    keep = images.regions.shape[1] - 3
    mask = torch.ones(images.regions.shape[:2], dtype=torch.bool)
    mask[:, keep:] = False
    masked = ImageCodes(images.regions * mask[..., None], images.vectors, mask)
    fewer = ImageCodes(images.regions[:, :keep], images.vectors)
    assert mean_over(masked.regions, mask).shape == images.vectors.shape
    torch.testing.assert_close(
        matcher.similarity(masked, texts), matcher.similarity(fewer, texts), atol=1e-6, rtol=0
    )
