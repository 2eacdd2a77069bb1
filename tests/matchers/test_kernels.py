"""The fast products and the handwritten gradients against plain torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from truepair.matchers import kernels
from truepair.matchers.kernels import (
    Span,
    aligned,
    l2norm,
    linear,
    owners_of,
    short_softmax_,
    squared_distances,
)


@pytest.fixture
def always_fast(monkeypatch):
    """Use the fast product for the smallest matrices too."""
    monkeypatch.setattr(kernels, "ONEDNN_FROM", 1)


def test_linear_equals_torch_with_its_gradients(always_fast):
    torch.manual_seed(0)
    layer = nn.Linear(24, 7)
    x = torch.randn(3, 5, 24, requires_grad=True)
    for inputs in (x, x.transpose(0, 1), x[:, :1], x[:, ::2]):
        ours, theirs = linear(inputs, layer.weight, layer.bias), layer(inputs)
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
        gradient = torch.randn_like(ours)
        leaves = (x, layer.weight, layer.bias)
        for a, b in zip(
            torch.autograd.grad(ours, leaves, gradient),
            torch.autograd.grad(theirs, leaves, gradient),
            strict=True,
        ):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_linear_has_gradients_of_gradients(always_fast):
    torch.manual_seed(0)
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(3, 6, requires_grad=True)

    def second(product):
        (first,) = torch.autograd.grad(product(x, w).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), w)[0]

    torch.testing.assert_close(second(linear), second(F.linear), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 50.0, 1e4])
def test_short_softmax(scale):
    x = torch.randn(6, 5) * scale
    torch.testing.assert_close(
        short_softmax_(x.clone()), x.double().softmax(-1).float(), atol=1e-6, rtol=1e-5
    )


def block_of(counts_and_lengths, padding=0):
    spans, text, word = [], 0, 0
    for count, length in counts_and_lengths:
        spans.append(Span(slice(text, text + count), slice(word, word + count * length), length))
        text, word = text + count, word + count * length
    lengths = torch.tensor([length for count, length in counts_and_lengths for _ in range(count)])
    return spans, owners_of(lengths, word + padding, torch.device("cpu")), word


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("double", [True, False])
def test_aligned_equals_pairs_one_by_one_with_its_gradients(double, n, always_fast):
    torch.manual_seed(0)
    dtype = torch.float64 if double else torch.float32
    k, d, s = 6, 12, 5
    spans, owners, total = block_of([(2, 1), (3, 4), (1, 5)], padding=2)
    regions = F.normalize(torch.randn(n, k, d, dtype=dtype), dim=-1).requires_grad_()
    words = F.normalize(torch.randn(total + 2, d, dtype=dtype), dim=-1).requires_grad_()
    weight = torch.randn(s, d, dtype=dtype, requires_grad=True)
    bias = torch.randn(s, dtype=dtype, requires_grad=True)
    block = aligned(regions, words, owners, weight, bias)

    single = []
    for span in spans:
        for j in range(span.texts.stop - span.texts.start):
            text = words[span.words][j * span.length : (j + 1) * span.length]
            single.append(l2norm(F.linear(squared_distances(regions, text.expand(n, -1, -1)), weight, bias)))
    expected = torch.cat(single, dim=1)
    tolerance = {"atol": 1e-11, "rtol": 1e-11} if double else {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(block[:, :total], expected, **tolerance)

    leaves, gradient = (regions, words, weight, bias), torch.randn_like(expected)
    ours = torch.autograd.grad(block[:, :total], leaves, gradient)
    theirs = torch.autograd.grad(expected, leaves, gradient)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() < b.abs().max() * (1e-10 if double else 1e-4)


def test_a_region_at_right_angles_to_a_text_gives_no_nan():
    _, owners, _ = block_of([(1, 2)])
    regions = torch.eye(4)[None, :3].requires_grad_()
    words = torch.eye(4)[2:].clone().requires_grad_()
    weight, bias = torch.ones(2, 4), torch.zeros(2)
    out = aligned(regions, words, owners, weight, bias)
    out.sum().backward()
    assert out.isfinite().all()
    assert regions.grad.isfinite().all()
    assert words.grad.isfinite().all()
