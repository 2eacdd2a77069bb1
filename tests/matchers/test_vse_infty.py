"""VSE-infinity against recorded numbers, and its pooling against a loop."""

import pytest
import torch

from truepair.interop import matcher_from_published
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


class TestRecordedNumbers:
    """The recorded batch-norm buffers are those after the training-mode pass; undoing it gives those before."""

    @pytest.fixture
    def recorded(self, oracle):
        return {name: torch.tensor(value) for name, value in oracle("vse_infty").items()}

    @pytest.fixture
    def matcher(self, oracle, recorded, published_weights):
        matcher = matcher_from_published("VSE-infinity", published_weights(oracle("vse_infty")))
        assert isinstance(matcher, VSEInfty)
        encoder = matcher.image_encoder
        with torch.no_grad():
            hidden = encoder.hidden(recorded["images"].flatten(0, 1))
            for name, batch in (("running_mean", hidden.mean(0)), ("running_var", hidden.var(0))):
                after = recorded[f"after_trainmode__img_enc.mlp.bns.0.{name}"]
                getattr(encoder.norm, name).copy_((after - 0.1 * batch) / 0.9)
        return matcher

    @staticmethod
    def encode(matcher, recorded):
        mask = torch.arange(recorded["images"].shape[1])[None] < recorded["image_lengths"][:, None]
        images = matcher.encode_images(recorded["images"], mask)
        return images, matcher.encode_texts(recorded["captions"], recorded["lengths"]), mask

    def test_features_weights_and_pooled_vectors(self, matcher, recorded):
        images, texts, mask = self.encode(matcher, recorded)
        close = {"atol": 1e-5, "rtol": 0}
        torch.testing.assert_close(images.regions[mask], recorded["img_features_before_pool"][mask], **close)
        torch.testing.assert_close(texts.words, recorded["txt_features_before_pool"], **close)
        image_weights = matcher.image_pooling.weights(recorded["image_lengths"])
        text_weights = matcher.text_pooling.weights(recorded["lengths"])
        torch.testing.assert_close(image_weights, recorded["img_pool_weights"], **close)
        torch.testing.assert_close(text_weights, recorded["txt_pool_weights"], **close)
        pooled = matcher.image_pooling(images.regions, mask)
        torch.testing.assert_close(pooled, recorded["img_pooled"], **close)
        words = torch.arange(texts.words.shape[1])[None] < texts.lengths[:, None]
        pooled = matcher.text_pooling(texts.words, words)
        torch.testing.assert_close(pooled, recorded["txt_pooled"], **close)
        torch.testing.assert_close(images.vectors, recorded["img_emb"], **close)
        torch.testing.assert_close(texts.vectors, recorded["txt_emb"], **close)
        torch.testing.assert_close(matcher.similarity(images, texts), recorded["sims"], **close)

    def test_training_mode(self, matcher, recorded):
        images, *_ = self.encode(matcher.train(), recorded)
        torch.testing.assert_close(images.vectors, recorded["trainmode_img_emb"], atol=1e-5, rtol=0)
        for name in ("running_mean", "running_var"):
            after = recorded[f"after_trainmode__img_enc.mlp.bns.0.{name}"]
            torch.testing.assert_close(getattr(matcher.image_encoder.norm, name), after, atol=1e-5, rtol=0)

    @pytest.mark.parametrize("maximum", [False, True])
    def test_triplet_loss_on_the_similarities(self, recorded, oracle_settings, matcher, maximum):
        images, texts, _ = self.encode(matcher, recorded)
        size = oracle_settings("vse_infty")["loss_batch"]
        similarity = matcher.similarity(images, texts)[:size, :size]
        given, apart = similarity.diagonal(), ~torch.eye(size, dtype=torch.bool)
        to_text = (0.2 + similarity - given[:, None]).clamp_min(0) * apart
        to_image = (0.2 + similarity - given[None]).clamp_min(0) * apart
        if maximum:
            loss, name = to_text.amax(1).sum() + to_image.amax(0).sum(), "loss_maxviolation"
        else:
            loss, name = to_text.sum() + to_image.sum(), "loss_sum"
        torch.testing.assert_close(loss, recorded[name], atol=0, rtol=1e-5)
