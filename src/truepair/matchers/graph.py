"""Similarity graph reasoning over the nodes of many pairs, with gradients written by hand.

Nodes of pairs with texts of one bucket of lengths lie p x t x s, all buckets under each other as rows. Few large
products on round sizes take half the time of many exact ones; the nodes beyond a text's own are zero and stay zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from truepair.losses.precision import full_precision
from truepair.matchers.kernels import ROUND_ROWS, Linear, Span, exactly, product, short_softmax_

ROUND_NODES = 4


@dataclass(frozen=True)
class Bucket:
    """Neighbouring spans of texts whose nodes are padded to the same number."""

    spans: list[Span]
    nodes: int

    @property
    def texts(self) -> slice:
        """Which texts of the block."""
        return slice(self.spans[0].texts.start, self.spans[-1].texts.stop)

    @property
    def count(self) -> int:
        """How many texts."""
        return sum(span.texts.stop - span.texts.start for span in self.spans)


class Size(NamedTuple):
    """How many pairs, and how many nodes each has."""

    pairs: int
    nodes: int


@dataclass(frozen=True)
class Layout:
    """How rows of nodes are cut: one size per bucket, then padding. real: p x 1 x t each, 1 where a node is one."""

    sizes: list[Size]
    real: list[Tensor] | None

    @property
    def first(self) -> "Layout":
        """That of the first node of every pair alone; these are all real."""
        return Layout([Size(pairs, 1) for pairs, _ in self.sizes], None)

    @property
    def used(self) -> int:
        """Rows before the padding."""
        return sum(pairs * nodes for pairs, nodes in self.sizes)

    @property
    def padded(self) -> int:
        """All rows: see kernels.ROUND_ROWS."""
        return self.used + -self.used % ROUND_ROWS

    def cut(self, rows: Tensor) -> list[Tensor]:
        """Views of the rows, p x t x s per bucket."""
        counts = [pairs * nodes for pairs, nodes in self.sizes]
        parts = rows.split_with_sizes([*counts, len(rows) - sum(counts)])
        return [part.view(*size, -1) for part, size in zip(parts[:-1], self.sizes, strict=True)]

    def empty(self, like: Tensor) -> Tensor:
        """Rows to be written, with zeros in the padding."""
        rows = like.new_empty(self.padded, like.shape[-1])
        rows[self.used :] = 0
        return rows


class GraphStep(nn.Module):
    """Every node becomes a mixture of all nodes of its pair, weighed by learned edges."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = Linear(width, width)
        # Without a bias: it would add the same to every edge that leaves a node, and the softmax removes that.
        self.key = Linear(width, width, bias=False)
        self.out = Linear(width, width)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Query and key projection as one matrix and one bias, so that only one side has to be projected."""
        return self.key.weight.T @ self.query.weight, self.query.bias @ self.key.weight

    def forward(
        self, rows: Tensor, layout: Layout, folded: tuple[Tensor, Tensor], *, first_only: bool = False
    ) -> Tensor:
        """rows: nodes of all pairs. Returns the same, reasoned.

        first_only: compute the first node of each pair only; one row per pair.
        """
        parameters = [*folded, self.out.weight, self.out.bias]
        kind = rows.device.type
        if torch.is_autocast_enabled(kind):
            narrow = torch.get_autocast_dtype(kind)
            rows, parameters = rows.to(narrow), [parameter.to(narrow) for parameter in parameters]
        with exactly(rows):
            result: Tensor = _Step.apply(  # type: ignore[no-untyped-call]
                rows, layout, layout.first if first_only else layout, *parameters
            )
        return result


def rows_of_matrix(whole: Tensor, local: Tensor, spans: list[Span]) -> tuple[Tensor, Layout]:
    """Nodes of every image with every text of a block, the global one first.

    whole: n x c x s. local: n x t x s, words laid end to end. Pairs lie image by image within a bucket.
    """
    buckets = buckets_of(spans)
    sizes = [Size(len(whole) * bucket.count, bucket.nodes) for bucket in buckets]
    real = [_real(bucket).to(whole)[:, None].repeat(len(whole), 1, 1) for bucket in buckets]
    rows: Tensor = _Rows.apply(whole, local, buckets, layout := Layout(sizes, real))  # type: ignore[no-untyped-call]
    return rows, layout


def rows_of_pairs(groups: list[Tensor]) -> tuple[Tensor, Layout]:
    """Nodes of listed pairs. groups: p x t x s each, without padding."""
    layout = Layout([Size(*nodes.shape[:2]) for nodes in groups], None)
    padding = groups[0].new_zeros(layout.padded - layout.used, groups[0].shape[-1])
    return torch.cat([*(nodes.flatten(0, 1) for nodes in groups), padding]), layout


def buckets_of(spans: list[Span]) -> list[Bucket]:
    """Spans in ascending order of length, with a node more than words each, rounded up."""
    buckets: list[Bucket] = []
    for span in spans:
        nodes = span.length + 1 + -(span.length + 1) % ROUND_NODES
        if buckets and buckets[-1].nodes == nodes:
            buckets[-1].spans.append(span)
        else:
            buckets.append(Bucket([span], nodes))
    return buckets


def _real(bucket: Bucket) -> Tensor:
    """Which nodes of each text of a bucket are real, c x t."""
    lengths = [span.length for span in bucket.spans for _ in range(span.texts.stop - span.texts.start)]
    return torch.arange(bucket.nodes) <= torch.tensor(lengths)[:, None]


def _blocks(
    rows: Tensor, whole: Tensor, local: Tensor, buckets: list[Bucket], layout: Layout
) -> list[tuple[Tensor, Tensor]]:
    """What belongs together, as views: parts of the rows with the global and the local nodes that lie there."""
    images, width = len(whole), whole.shape[-1]
    pairs = []
    for nodes, bucket in zip(layout.cut(rows), buckets, strict=True):
        nodes = nodes.view(images, bucket.count, bucket.nodes, width)
        pairs.append((nodes[:, :, 0], whole[:, bucket.texts]))
        for span in bucket.spans:
            start, stop = (edge - bucket.texts.start for edge in (span.texts.start, span.texts.stop))
            words = local[:, span.words].view(images, stop - start, span.length, width)
            pairs.append((nodes[:, start:stop, 1 : span.length + 1], words))
    return pairs


def _beyond(nodes: Tensor, bucket: Bucket) -> Iterator[Tensor]:
    """Views of the nodes that no text has. nodes: n x c x t x s."""
    for span in bucket.spans:
        start, stop = (edge - bucket.texts.start for edge in (span.texts.start, span.texts.stop))
        yield nodes[:, start:stop, span.length + 1 :]


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, local: Tensor, buckets: list[Bucket], layout: Layout) -> Tensor:
        ctx.buckets, ctx.layout, ctx.shapes = buckets, layout, (whole.shape, local.shape)
        rows = layout.empty(whole)
        for part, nodes in _blocks(rows, whole, local, buckets, layout):
            part.copy_(nodes)
        for nodes, bucket in zip(layout.cut(rows), buckets, strict=True):
            for beyond in _beyond(nodes.view(len(whole), bucket.count, *nodes.shape[1:]), bucket):
                beyond.zero_()
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        whole, local = (gradient.new_zeros(shape) for shape in ctx.shapes)
        for part, nodes in _blocks(gradient, whole, local, ctx.buckets, ctx.layout):
            nodes.copy_(part)
        return whole, local, None, None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        layout: Layout,
        asking: Layout,
        query: Tensor,
        query_bias: Tensor,
        out: Tensor,
        out_bias: Tensor,
    ) -> Tensor:
        groups = layout.cut(rows)
        asked = rows if asking is layout else rows_of_pairs([nodes[:, :1] for nodes in groups])[0]
        queries, mixed = product(asked, query, query_bias), asking.empty(rows)
        edges = []
        for i, (nodes, ask, mixture) in enumerate(
            zip(groups, asking.cut(queries), asking.cut(mixed), strict=True)
        ):
            real = None if layout.real is None else layout.real[i]
            edge = short_softmax_(full_precision(ask @ nodes.mT), real).to(nodes.dtype)
            edges.append(edge)
            torch.bmm(edge, nodes, out=mixture)
        result = product(mixed, out, out_bias).relu_()
        if asking.real is not None:
            for nodes, real in zip(asking.cut(result), asking.real, strict=True):
                nodes.mul_(real.mT)
        ctx.save_for_backward(rows, asked, queries, mixed, result, query, out, *edges)
        ctx.layout, ctx.asking = layout, asking
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, asked, queries, mixed, result, query, out, *edges = ctx.saved_tensors
        layout, asking = ctx.layout, ctx.asking
        # Nodes that are none came out as zeros, so that no gradient gets past here from them.
        gradient = torch.ops.aten.threshold_backward(gradient, result, 0)
        # Weights' gradients by torch's product: for the other one it would have to copy both sides.
        of_mixed, of_out = product(gradient, out.T), gradient.T @ mixed
        of_rows, of_queries = layout.empty(rows), asking.empty(rows)
        for edge, nodes, of_nodes, ask, of_ask, of_mixture in zip(
            edges,
            layout.cut(rows),
            layout.cut(of_rows),
            asking.cut(queries),
            asking.cut(of_queries),
            asking.cut(of_mixed),
            strict=True,
        ):
            of_edge = of_mixture @ nodes.mT
            torch.bmm(edge.mT, of_mixture, out=of_nodes)
            along = (of_edge * edge).sum(dim=-1, keepdim=True)
            of_edge = of_edge.sub_(along).mul_(edge)
            torch.bmm(of_edge, nodes, out=of_ask)
            of_nodes.baddbmm_(of_edge.mT, ask)
        through = product(of_queries, query.T)
        if asking is layout:
            of_rows += through
        else:
            for of_nodes, of_first in zip(layout.cut(of_rows), asking.cut(through), strict=True):
                of_nodes[:, :1] += of_first
        of_query = of_queries.T @ asked
        return of_rows, None, None, of_query, of_queries.sum(dim=0), of_out, gradient.sum(dim=0)
