"""Scores on demand: the sparse way to a loss equals the dense one."""

import pytest
import torch

from truepair.losses.triplet import triplet
from truepair.matchers.registry import build_matcher
from truepair.training.scores import Scores

SIZES = {"image_width": 7, "vocabulary_size": 20, "word_width": 5, "embedding": 8}


@pytest.fixture(params=["sgr", "vse_infty"])
def scores(request) -> Scores:
    torch.manual_seed(0)
    options = {"similarity": 6, "dropout": 0.0} if request.param == "sgr" else {}
    matcher = build_matcher(request.param, **SIZES, **options)
    lengths = torch.tensor([3, 5, 1, 4, 2, 5])
    tokens = torch.randint(1, 20, (6, 5))
    return Scores(matcher, matcher.encode_images(torch.randn(6, 4, 7)), matcher.encode_texts(tokens, lengths))


def gradients(scores: Scores, loss: torch.Tensor) -> list[torch.Tensor]:
    parameters = list(scores.matcher.parameters())
    found = torch.autograd.grad(loss.sum(), parameters, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


@pytest.mark.parametrize("negatives", ["hardest", "mean", "sum"])
@pytest.mark.parametrize("margin", ["number", "per pair", "matrix"])
def test_the_triplet_loss_equals_that_of_the_whole_matrix(scores, negatives, margin):
    margins = {"number": 0.2, "per pair": torch.rand(6) / 5, "matrix": torch.rand(6, 6) / 5}[margin]
    loss = scores.triplet(margins, negatives)
    sparse = negatives == "hardest" and scores.matcher.pairs_are_costly
    assert ("similarity" in scores.__dict__) != sparse, "costly matrices are not built for nothing"
    whole = triplet(scores.similarity, margins, negatives)
    torch.testing.assert_close(loss, whole, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(gradients(scores, loss), gradients(scores, whole), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


def test_constant_scores_have_no_gradient_and_the_same_values(scores):
    constant = scores.constant
    assert not constant.requires_grad
    torch.testing.assert_close(constant, scores.similarity.detach())
    torch.testing.assert_close(scores.constant, scores.similarity.detach())
    assert scores.similarity.requires_grad


def test_listed_pairs_are_entries_of_the_matrix(scores):
    rows, columns = torch.tensor([0, 5, 2]), torch.tensor([3, 3, 1])
    listed = scores.pairs(rows, columns)
    torch.testing.assert_close(listed, scores.similarity[rows, columns], atol=1e-5, rtol=1e-5)


def test_scores_are_full_precision_whatever_the_matcher_used(scores):
    with torch.autocast("cpu", torch.bfloat16):
        codes = Scores(scores.matcher, scores.images, scores.texts)
        assert codes.similarity.dtype == torch.float32
        assert codes.pairs(torch.tensor([0]), torch.tensor([1])).dtype == torch.float32
