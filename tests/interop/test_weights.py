"""Matchers from published weights."""

import re

import numpy as np
import pytest
import torch

from truepair.errors import TruepairError
from truepair.interop import PublishedCheckpoint, matcher_from_published
from truepair.matchers.sgraf import SAF, SGR, SGRAF


def published(arrays):
    parts = ("img_enc.", "txt_enc.", "sim_enc.")
    return {name: torch.tensor(value) for name, value in arrays.items() if name.startswith(parts)}


@pytest.fixture
def sgr(oracle):
    return published(oracle("sgr"))


@pytest.fixture
def saf(oracle):
    return published(oracle("saf"))


def similarity(matcher, arrays):
    images = matcher.encode_images(torch.tensor(arrays["images"]))
    texts = matcher.encode_texts(torch.tensor(arrays["captions"]), torch.tensor(arrays["lengths"]))
    return matcher.similarity(images, texts).detach().numpy()


@pytest.mark.parametrize("kind", ["sgr", "SGR", " Sgr"])
def test_sizes_are_read_off_the_shapes(sgr, oracle_settings, kind):
    matcher = matcher_from_published(kind.strip(), sgr)
    assert isinstance(matcher, SGR)
    assert not matcher.training
    config, recorded = matcher.config, oracle_settings("sgr")
    for ours, theirs in (
        ("image_width", "img_dim"),
        ("vocabulary_size", "vocab"),
        ("word_width", "word_dim"),
        ("embedding", "embed"),
        ("similarity", "sim_dim"),
        ("steps", "sgr_step"),
    ):
        assert getattr(config, ours) == recorded[theirs]
    assert (config.region_norm, config.region_slots, config.bidirectional) == ("slot", 36, True)
    assert config.dropout == 0.4


def test_names_of_wrapped_networks(oracle, sgr):
    wrapped = {f"module.{name}": value for name, value in sgr.items()}
    np.testing.assert_allclose(
        similarity(matcher_from_published("sgr", wrapped), oracle("sgr")), oracle("sgr")["sims"], atol=1e-5
    )


@pytest.mark.parametrize(
    "spelling", ["vse_infty", "vse-infty", "VSE-infinity", "vse_infinity", "VSEinfty", "VSE∞"]
)
def test_spellings_and_entries_without_effect(oracle, spelling):
    weights = published(oracle("vse_infty"))
    assert "img_enc.mlp.bns.1.weight" in weights
    matcher = matcher_from_published(spelling, weights)
    config = matcher.config
    embedding, hidden = weights["img_enc.mlp.layers.1.weight"].shape
    assert (config.embedding, config.image_hidden) == (embedding, hidden)
    assert (config.position_width, config.pooling_hidden) == (32, 32)


@pytest.mark.parametrize("turned", [False, True])
def test_sgraf_is_made_of_both_halves_in_any_order(oracle, sgr, saf, turned):
    matcher = matcher_from_published("sgraf", [saf, sgr] if turned else (sgr, saf))
    assert isinstance(matcher, SGRAF)
    arrays = oracle("sgr")
    expected = [
        similarity(matcher_from_published(kind, half), arrays) for kind, half in (("sgr", sgr), ("saf", saf))
    ]
    np.testing.assert_allclose(similarity(matcher, arrays), sum(expected) / 2, atol=1e-6)


def test_scan_has_the_encoders_of_the_published_code(sgr):
    """SCAN's own names: txt_enc.rnn for the GRU; no similarity network."""
    names = {name.replace("cap_rnn", "rnn"): value for name, value in sgr.items() if "sim_enc" not in name}
    matcher = matcher_from_published("SCAN", names, direction="i2t", aggregation="mean")
    assert matcher.config.attention_smooth == 4
    tokens, lengths = torch.tensor([[3, 4, 5]]), torch.tensor([3])
    expected = matcher_from_published("sgr", sgr).encode_texts(tokens, lengths).words
    torch.testing.assert_close(matcher.encode_texts(tokens, lengths).words, expected)


def test_scan_takes_its_variant_from_the_recorded_options(sgr):
    names = {name.replace("cap_rnn", "rnn"): value for name, value in sgr.items() if "sim_enc" not in name}
    options = {"cross_attn": "i2t", "agg_func": "Mean", "lambda_softmax": 7.0, "lambda_lse": 3.0}
    config = matcher_from_published("scan", PublishedCheckpoint("f", [names], options)).config
    assert (config.direction, config.aggregation, config.smooth, config.lse_weight) == (
        "i2t",
        "mean",
        7.0,
        3.0,
    )
    with pytest.raises(TruepairError, match="raw_feature_norm=softmax"):
        matcher_from_published("scan", PublishedCheckpoint("f", [names], {"raw_feature_norm": "softmax"}))


def test_a_network_of_a_checkpoint_is_chosen_by_number(sgr, saf):
    checkpoint = PublishedCheckpoint("pair.pth.tar", [sgr, saf])
    assert isinstance(matcher_from_published("saf", checkpoint, network=1), SAF)
    with pytest.raises(TruepairError, match=re.escape("holds 2 network(s)")):
        matcher_from_published("sgr", checkpoint, network=2)


def test_options_the_matchers_do_not_follow_are_refused(sgr):
    with pytest.raises(TruepairError, match="trained with no_imgnorm"):
        matcher_from_published("sgr", PublishedCheckpoint("f.pth.tar", [sgr], {"no_imgnorm": True}))


def test_what_is_missing_or_unknown_is_named(sgr, saf):
    with pytest.raises(TruepairError, match=re.escape("know: sim_enc.SGR_module.0.graph_query_w.weight")):
        matcher_from_published("saf", sgr)
    with pytest.raises(TruepairError, match=re.escape("lack sim_enc.SAF_module.attn_sim_w.weight")):
        matcher_from_published("saf", {k: v for k, v in saf.items() if "attn_sim_w.weight" not in k})
    with pytest.raises(TruepairError, match=re.escape("lack 'img_enc.fc.weight'")):
        matcher_from_published("sgr", {})
    with pytest.raises(TruepairError, match=re.escape("'sim_enc.sim_eval_w.weight' of 'sgr' has the shape")):
        matcher_from_published("sgr", sgr | {"sim_enc.sim_eval_w.weight": torch.zeros(1, 3)})
    with pytest.raises(TruepairError, match=re.escape("'img_enc.fc.weight' of 'sgr' has the shape (3,)")):
        matcher_from_published("sgr", sgr | {"img_enc.fc.weight": torch.zeros(3)})
    without_steps = {k: v for k, v in sgr.items() if "SGR_module" not in k}
    with pytest.raises(TruepairError, match=re.escape("lack 'sim_enc.SGR_module.0.")):
        matcher_from_published("sgr", without_steps)
    with pytest.raises(TruepairError, match="no option colour"):
        matcher_from_published("sgr", sgr, colour="red")


@pytest.mark.parametrize("kind", ["projection", "clip"])
def test_kinds_without_published_weights_are_named(kind, sgr):
    with pytest.raises(
        TruepairError, match=re.escape(f"'{kind}'. There are: sgr, saf, sgraf, scan, vse_infty")
    ):
        matcher_from_published(kind, sgr)


def test_sgraf_needs_two_state_dicts(sgr):
    with pytest.raises(TruepairError, match="give the state dicts of both"):
        matcher_from_published("sgraf", sgr)
