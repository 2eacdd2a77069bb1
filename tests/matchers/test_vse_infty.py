"""VSE-infinity against recorded numbers, and its pooling against a loop."""

import pytest
import torch

from truepair.matchers.vse_infty import RankPooling, VSEInfty, VSEInftyConfig, position_codes


def test_position_codes(oracle):
    recorded = torch.tensor(oracle("vse_infty")["positional_encoding"])
    torch.testing.assert_close(position_codes(*recorded.shape), recorded, atol=1e-6, rtol=0)


def test_pooling_equals_a_loop_over_items_and_channels():
    torch.manual_seed(0)
    pool = RankPooling(8, 8, temperature=0.1)
    features, mask = torch.randn(5, 6, 3), torch.rand(5, 6) < 0.6
    mask[:, 1] = True
    pooled = pool(features, mask)
    for i in range(5):
        count = int(mask[i].sum())
        weights = pool.weights(torch.tensor([count]))[0]
        assert len(weights) == count
        assert weights.sum().item() == pytest.approx(1, abs=1e-6)
        for channel in range(3):
            values = sorted(features[i, mask[i], channel].tolist(), reverse=True)
            expected = sum(w * v for w, v in zip(weights.tolist(), values, strict=True))
            assert pooled[i, channel].item() == pytest.approx(expected, abs=1e-6)


def test_padding_enters_the_batch_statistics_only_as_published():
    """The published code lets padded rows into the batch norm while training; by default ours stay out."""
    regions, mask = torch.randn(4, 6, 12), torch.ones(4, 6, dtype=torch.bool)
    mask[:, 4:] = False
    longer = torch.nn.functional.pad(regions, (0, 0, 0, 5))
    longer_mask = torch.nn.functional.pad(mask, (0, 5))

    def difference(padding_in_statistics):
        torch.manual_seed(0)
        config = VSEInftyConfig(12, 9, 4, 8, padding_in_statistics=padding_in_statistics)
        matcher = VSEInfty(config).train()
        short, long = matcher.encode_images(regions, mask), matcher.encode_images(longer, longer_mask)
        return (short.vectors - long.vectors).abs().max().item()

    assert difference(False) < 1e-6
    assert difference(True) > 1e-3
