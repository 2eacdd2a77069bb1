"""A round of reasoning against plain torch, values and gradients."""

import pytest
import torch
from torch.nn import functional as F

from truepair.matchers.blocks import spans_of
from truepair.matchers.graph import GraphStep, buckets_of, rows_of_matrix, rows_of_pairs


def plainly(step, nodes):
    query, key = step.query(nodes), step.key(nodes)
    edges = (query @ key.mT).softmax(dim=-1)
    return F.relu(step.out(edges @ nodes))


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_of_groups_of_several_lengths(first_only, dtype):
    torch.manual_seed(0)
    step = GraphStep(6).to(dtype)
    groups = [torch.randn(p, t, 6, dtype=dtype, requires_grad=True) for p, t in ((3, 2), (1, 5), (4, 3))]
    rows, layout = rows_of_pairs(groups)
    result = step(rows, layout, step.folded(), first_only=first_only)

    expected = [plainly(step, nodes) for nodes in groups]
    if first_only:
        expected = [nodes[:, :1] for nodes in expected]
    expected = torch.cat([nodes.flatten(0, 1) for nodes in expected])
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 1e-12, "rtol": 1e-10}
    torch.testing.assert_close(result[: len(expected)], expected, **tolerance)

    gradient = torch.randn_like(expected)
    leaves = [*groups, *step.parameters()]
    ours = torch.autograd.grad(result[: len(expected)], leaves, gradient)
    theirs = torch.autograd.grad(expected, leaves, gradient)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def test_under_autocast_products_are_narrow_and_gradients_arrive():
    torch.manual_seed(0)
    step = GraphStep(8)
    groups = [torch.randn(5, 4, 8, requires_grad=True)]
    with torch.autocast("cpu", torch.bfloat16):
        rows, layout = rows_of_pairs(groups)
        result = step(rows, layout, step.folded())
        assert result.dtype == torch.bfloat16
    result.float().sum().backward()
    expected = plainly(step, groups[0].detach()).flatten(0, 1)
    torch.testing.assert_close(result[:20].float(), expected, atol=0.05, rtol=0.05)
    assert groups[0].grad.dtype == step.query.weight.grad.dtype == torch.float32
    assert groups[0].grad.isfinite().all()


@pytest.mark.parametrize("large", [False, True])
def test_padded_buckets_change_nothing(large):
    """Two rounds and the first nodes of a third, of every image with every text; large edges take torch's softmax."""
    torch.manual_seed(0)
    steps = [GraphStep(6).double() for _ in range(3)]
    lengths = torch.tensor([1, 2, 2, 3, 4, 7, 7, 9])
    spans, words = spans_of(lengths), int(lengths.sum())
    assert [bucket.nodes for bucket in buckets_of(spans)] == [4, 8, 12]
    scale = 100.0 if large else 1.0
    whole = (scale * torch.randn(2, 8, 6)).double().requires_grad_()
    local = torch.randn(2, words + 3, 6, dtype=torch.float64, requires_grad=True)  # three of padding
    rows, layout = rows_of_matrix(whole, local, spans)
    for step in steps[:2]:
        rows = step(rows, layout, step.folded())
    found = layout.first.cut(steps[2](rows, layout, steps[2].folded(), first_only=True))
    found = torch.cat([part.view(2, -1, 6) for part in found], dim=1)

    expected = []
    for text, (start, length) in enumerate(zip(lengths.cumsum(0) - lengths, lengths, strict=True)):
        nodes = torch.cat([whole[:, text, None], local[:, start : start + length]], dim=1)
        for step in steps:
            nodes = plainly(step, nodes)
        expected.append(nodes[:, 0])
    expected = torch.stack(expected, dim=1)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-8)

    leaves, gradient = (whole, local, *steps[0].parameters()), torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(found, leaves, gradient),
        torch.autograd.grad(expected, leaves, gradient),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-6)
