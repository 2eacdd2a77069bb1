import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truepair.beliefs.ledger import Partition
from truepair.losses.relation import (
    RelationProjection,
    RelationScores,
    cosine_scores,
    recon_weights,
    relation_discrepancy,
    relation_inconsistency,
)


def everything_true(n, width):
    return torch.ones(n, width, dtype=torch.bool)


@pytest.fixture
def codes():
    draw = torch.Generator().manual_seed(1)
    return (
        torch.randn(3, 5, 8, generator=draw, dtype=torch.float64),
        torch.randn(3, 4, 8, generator=draw, dtype=torch.float64),
    )


class PublishedCase:
    """One of the recorded pairs, its projection with the recorded weights and our scores."""

    def __init__(self, recorded, case):
        self.regions_count, self.words_count, _ = recorded[f"{case}_n"].tolist()
        stacked = torch.as_tensor(recorded[f"{case}_stacked"])
        self.regions = stacked[None, : self.regions_count]
        self.words = stacked[None, self.regions_count : self.regions_count + self.words_count]
        self.projection = RelationProjection(stacked.shape[1])
        own = {name: torch.as_tensor(recorded[f"attn.{name}"]) for name in self.projection.state_dict()}
        self.projection.load_state_dict(own)
        self.scores = self.projection(self.regions, self.words)
        self.recorded = {
            name.removeprefix(f"{case}_"): torch.as_tensor(value)
            for name, value in recorded.items()
            if name.startswith(f"{case}_")
        }


@pytest.fixture(params="abc")
def published(request, oracle):
    return PublishedCase(oracle("recon_relation"), request.param)


def test_the_projection_gives_the_published_attention(published, oracle):
    scores = published.scores
    upper = torch.cat([scores.region_region, scores.region_word], 2)
    lower = torch.cat([scores.word_region, scores.word_word], 2)
    attention = torch.cat([upper, lower], 1).softmax(2)[0].detach()
    k = published.regions_count
    blocks = {
        "attn_vv": attention[:k, :k],
        "attn_vl": attention[:k, k:],
        "attn_lv": attention[k:, :k],
        "attn_ll": attention[k:, k:],
    }
    for name, block in blocks.items():
        torch.testing.assert_close(block, published.recorded[name], rtol=1e-5, atol=1e-6)
    assert blocks["attn_vl"].argmax(1).tolist() == published.recorded["argmax_region_to_word"].tolist()
    assert blocks["attn_lv"].argmax(1).tolist() == published.recorded["argmax_word_to_region"].tolist()
    # The published update of the codes, which nothing there uses, applies the same attention to values.
    weights = {
        name: torch.as_tensor(value) for name, value in oracle("recon_relation").items() if "attn." in name
    }
    stacked = torch.cat([published.regions, published.words], 1)[0]
    values = torch.nn.functional.linear(stacked, weights["attn.value.weight"], weights["attn.value.bias"])
    updated = torch.nn.functional.linear(
        attention @ values, weights["attn.out.weight"], weights["attn.out.bias"]
    )
    torch.testing.assert_close(updated, published.recorded["updated"][: len(stacked)], rtol=1e-4, atol=1e-5)


def test_the_joint_softmax_gives_the_published_loss_and_gradients(published):
    loss = relation_inconsistency(published.scores, joint_softmax=True).sum()
    loss.backward()
    torch.testing.assert_close(loss.detach(), published.recorded["loss"], rtol=1e-4, atol=1e-6)
    gradients = {"grad_query_w": published.projection.query, "grad_key_w": published.projection.key}
    for name, layer in gradients.items():
        torch.testing.assert_close(layer.weight.grad, published.recorded[name], rtol=1e-4, atol=1e-7)


def test_each_half_of_the_joint_softmax_gives_its_published_half(published):
    from truepair.losses.relation import _divergence_from_proxy, _joint_relations

    scores, swapped = published.scores, published.scores.swapped()
    region_mask = everything_true(1, published.regions_count)
    word_mask = everything_true(1, published.words_count)
    regions, words = _joint_relations(scores, region_mask, word_mask)
    of_regions = _divergence_from_proxy(scores.region_word, regions, words.exp(), region_mask, word_mask)
    of_words = _divergence_from_proxy(swapped.region_word, words, regions.exp(), word_mask, region_mask)
    torch.testing.assert_close(of_regions[0].detach(), published.recorded["loss_v"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(of_words[0].detach(), published.recorded["loss_l"], rtol=1e-4, atol=1e-6)


def inconsistency_by_loops(regions, words, temperature):
    """Eq. 3-4 of one pair without padding."""

    def cosine(a, b):
        dot = sum(float(x * y) for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(sum(float(x) ** 2 for x in a) * sum(float(y) ** 2 for y in b)) / temperature

    def normalised(scores):
        total = sum(math.exp(s) for s in scores)
        return [math.exp(s) / total for s in scores]

    def half(own, other):
        star = [max(range(len(other)), key=lambda j, v=v: cosine(v, other[j])) for v in own]
        loss = 0.0
        for i, v in enumerate(own):
            p = normalised([cosine(v, u) for u in own])
            q = normalised([cosine(other[star[i]], other[star[j]]) for j in range(len(own))])
            loss += sum(a * math.log(a / b) + b * math.log(b / a) for a, b in zip(p, q, strict=True))
        return loss / len(own)

    return half(regions, words) + half(words, regions)


def test_equals_the_equations_written_as_loops(codes):
    regions, words = codes
    ours = relation_inconsistency(cosine_scores(regions, words, 0.3))
    for i in range(3):
        assert float(ours[i]) == pytest.approx(inconsistency_by_loops(regions[i], words[i], 0.3), rel=1e-9)


@pytest.mark.parametrize("joint_softmax", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_padding_changes_nothing(codes, joint_softmax, learned):
    regions, words = codes
    torch.manual_seed(0)
    score = RelationProjection(8).double() if learned else cosine_scores
    lengths = ([5, 3, 2], [1, 4, 2])
    garbage = [codes.clone() for codes in (regions, words)]
    for i, (k, t) in enumerate(zip(*lengths, strict=True)):
        garbage[0][i, k:] = 100.0
        garbage[1][i, t:] = -100.0
    masks = [
        torch.arange(width)[None] < torch.tensor(length)[:, None]
        for width, length in zip((5, 4), lengths, strict=True)
    ]
    together = relation_inconsistency(score(*garbage), *masks, joint_softmax=joint_softmax)
    for i, (k, t) in enumerate(zip(*lengths, strict=True)):
        alone = score(regions[i : i + 1, :k], words[i : i + 1, :t])
        expected = relation_inconsistency(alone, joint_softmax=joint_softmax)
        torch.testing.assert_close(together[i : i + 1], expected)


def test_is_zero_exactly_when_the_relations_agree(codes):
    regions = codes[0]
    order = torch.tensor([3, 0, 4, 1, 2])
    assert relation_inconsistency(cosine_scores(regions, regions[:, order])).abs().max() < 1e-12
    others = regions[torch.tensor([1, 2, 0])]
    assert (relation_inconsistency(cosine_scores(regions, others)) > 0.1).all()


def test_pairs_do_not_see_each_other(codes):
    regions, words = codes
    order = torch.tensor([2, 0, 1])
    straight = relation_inconsistency(cosine_scores(regions, words))
    torch.testing.assert_close(
        relation_inconsistency(cosine_scores(regions[order], words[order])), straight[order]
    )


@pytest.mark.parametrize("joint_softmax", [False, True])
def test_both_modalities_are_trained(codes, joint_softmax):
    regions, words = (side.clone().requires_grad_() for side in codes)
    relation_inconsistency(cosine_scores(regions, words), joint_softmax=joint_softmax).sum().backward()
    assert (regions.grad.abs().sum((1, 2)) > 0).all()
    assert (words.grad.abs().sum((1, 2)) > 0).all()


def test_the_proxy_is_a_target_without_gradient():
    """Two words that stand exactly as their regions do have nothing to learn, though a third region disagrees."""
    region_region = torch.tensor([[[2.0, 0.5, 1.0], [0.5, 2.0, -1.0], [1.0, -1.0, 2.0]]], requires_grad=True)
    word_word = region_region[:, :2, :2].detach().clone().requires_grad_()
    region_word = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.9, 0.0]]])
    loss = relation_inconsistency(RelationScores(region_region, region_word, region_word.mT, word_word)).sum()
    loss.backward()
    assert loss.item() > 0.1
    assert region_region.grad.abs().max() > 0.01
    assert word_word.grad.abs().max() < 1e-6


@pytest.mark.parametrize("joint_softmax", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("same", [False, True])
def test_survives_awkward_codes(precision, joint_softmax, scale, same):
    draw = torch.Generator().manual_seed(0)
    regions = (torch.randn(2, 4, 6, generator=draw) * scale).to(precision)
    words = (torch.randn(2, 3, 6, generator=draw) * scale).to(precision)
    if same:
        regions, words = regions[:, :1].repeat(1, 4, 1), regions[:, :1].repeat(1, 3, 1)
    regions, words = regions.requires_grad_(), words.requires_grad_()
    mask = torch.tensor([[True, True, True], [True, False, False]])
    loss = relation_inconsistency(cosine_scores(regions, words), None, mask, joint_softmax=joint_softmax)
    loss.mean().backward()
    assert loss.isfinite().all()
    assert (loss >= 0).all()
    assert regions.grad.isfinite().all()
    assert words.grad.isfinite().all()


# Eq. 7 to 15


@given(st.floats(0, 1e6))
def test_the_discrepancy_is_eq_7_and_lies_below_1(loss):
    ours = float(relation_discrepancy(torch.tensor(loss, dtype=torch.float64)))
    assert ours == pytest.approx(math.log(1 + loss) / (1 + math.log(1 + loss)), abs=1e-12)
    assert 0 <= ours < 1


def test_the_discrepancy_grows_with_the_inconsistency():
    values = relation_discrepancy(torch.linspace(0, 50, 200))
    assert (values.diff() > 0).all()
    assert float(relation_discrepancy(torch.tensor(math.e - 1))) == pytest.approx(0.5)


def test_the_weights_are_those_of_eq_13_to_15():
    partition = torch.tensor([Partition.CLEAN, Partition.LOCAL, Partition.NOISY], dtype=torch.uint8)
    discrepancy, label = torch.tensor([0.3, 0.6, 0.7]), torch.tensor([0.9, 0.8, 0.2])
    cross, relation = recon_weights(partition, discrepancy, label, balance=5.0, scale=0.1)
    np.testing.assert_allclose(cross, [5.0, 5.0, 0.2], rtol=1e-6)
    np.testing.assert_allclose(relation, [1.0, 1 / math.exp(0.6 / 0.1), 0.0], rtol=1e-6)
