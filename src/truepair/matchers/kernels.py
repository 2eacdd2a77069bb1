"""Arithmetic that takes most of the time: matrix products, and words of texts attending to regions of images."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from truepair.losses.precision import full_precision

# oneDNN multiplies fp32 matrices two to three times faster than the library torch calls by default on many
# processors (measured: 220 against 75 GFlop/s). torch offers it for fp32 only through this operator. It compiles
# for every new shape (1 to 10 ms), so it serves large products only, and callers round their shapes.
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch._C._has_mkldnn else None

ONEDNN_FROM = 2**24  # multiplications
ROUND_WORDS, ROUND_ROWS = 64, 256

SMOOTH = 9.0  # SCAN's inverse temperature over regions, kept by SGRAF
SLOPE = 0.1  # of the leaky ReLU before it
EPS = 1e-8


def l2norm(x: Tensor, eps: float = EPS) -> Tensor:
    """The last axis at unit length. eps stands outside the root, as published; zeros stay zeros."""
    x = full_precision(x)
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / (length + eps)


def exactly(x: Tensor) -> torch.autocast:
    """Full precision under autocast too, for attention: its norm over the words magnifies rounding errors."""
    return torch.autocast(x.device.type, enabled=False)


class Linear(nn.Linear):
    """nn.Linear on the fastest product there is, with Xavier-uniform weights and zero bias."""

    def reset_parameters(self) -> None:
        """Draw fresh weights."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: ... x inputs."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias, like torch's; any strides. x: ... x i. weight: o x i. bias: o."""
    if _onednn_serves(x, weight):
        product: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return product
    return F.linear(x, weight, bias)


def _onednn_serves(x: Tensor, weight: Tensor) -> bool:
    return (
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() * weight.shape[-2] >= ONEDNN_FROM
        and not torch.is_autocast_enabled("cpu")
    )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same as linear, for tensors that need no gradient."""
    if _onednn_serves(x, weight):
        product: Tensor = _ONEDNN(x, weight, bias, "none", [], "")  # type: ignore[misc]
        return product
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        rows, outputs = x.flatten(0, -2), gradient.flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        # Written with the differentiable product, so that gradients of gradients exist.
        return (
            linear(gradient, weight.T) if needs_x else None,
            linear(outputs.T, rows.T) if needs_weight else None,
            outputs.sum(dim=0) if needs_bias else None,
        )


def short_softmax(x: Tensor) -> Tensor:
    """Softmax of the last axis. On a processor torch's takes seven times longer than exp and sum on short rows."""
    if x.device.type == "cpu" and x.numel() and float(x.detach().abs().amax()) < 60:  # exp stays in range
        powers = x.exp()
        softmax: Tensor = powers / powers.sum(dim=-1, keepdim=True)
        return softmax
    return torch.softmax(x, dim=-1)


class Span(NamedTuple):
    """Texts of one length that lie side by side: which texts and which words of the block they are."""

    texts: slice
    words: slice
    length: int


def squared_distances(regions: Tensor, words: Tensor) -> Tensor:
    """(context - word)^2 of listed pairs, p x t x d; the context is what a word sees of its image's regions.

    regions: p x k x d, zero where masked. words: p x t x d, texts of one length.
    """
    regions, words = full_precision(regions), full_precision(words)
    scores = l2norm(F.leaky_relu(regions @ words.mT, SLOPE))
    # Zero regions add nothing to a context, and unit length removes the softmax's denominator: neither the
    # mask nor the sum over regions is needed.
    contexts = (scores * SMOOTH).exp().mT @ regions
    return (l2norm(contexts, eps=EPS**2) - words).square()


def aligned(regions: Tensor, words: Tensor, spans: Sequence[Span], weight: Tensor, bias: Tensor) -> Tensor:
    """linear(squared_distances) of every image with every word of a block, n x t x s.

    regions: n x k x d, zero where masked. words: t x d, texts laid end to end, one span per length.
    weight: s x d. bias: s. Of the large temporaries only n x k x t outlives the call, n x t x d is made again.
    """
    with exactly(regions):
        result: Tensor = _Aligned.apply(  # type: ignore[no-untyped-call]
            full_precision(regions), full_precision(words), spans, weight, bias
        )
    return result


def aligned_with_one(
    regions: Tensor, words: Tensor, spans: Sequence[Span], weight: Tensor, bias: Tensor
) -> Tensor:
    """What aligned gives for one image, without gradients: half its time, since all products are tall. t x s.

    regions: k x d, zero where masked. words: t x d, as for aligned. weight: s x d. bias: s.
    """
    powers = F.leaky_relu_(_product(words, regions), SLOPE)
    for span in spans:
        part = powers[span.words].view(-1, span.length, powers.shape[1])
        part.div_(part.square().sum(dim=1, keepdim=True).sqrt_().add_(EPS))
    powers.mul_(SMOOTH).exp_()
    contexts = _product(powers, regions.T.contiguous())
    lengths = torch.linalg.vector_norm(contexts, dim=-1, keepdim=True).add_(EPS**2)
    return _product(torch.addcdiv(words, contexts, lengths, value=-1).square_(), weight, bias)


class _Aligned(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, regions: Tensor, words: Tensor, spans: Sequence[Span], weight: Tensor, bias: Tensor
    ) -> Tensor:
        powers, norms = _attention(regions, words, spans)
        ctx.save_for_backward(regions, words, weight, powers, norms)
        ctx.spans = spans
        contexts, _ = _contexts(powers, regions)
        return _product(contexts.sub_(words).square_(), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        regions, words, weight, powers, norms = ctx.saved_tensors
        contexts, lengths = _contexts(powers, regions)
        differences = contexts - words

        of_contexts = _product(gradient * 2, weight.T).mul_(differences)
        of_words = -of_contexts.sum(dim=0)
        of_outputs = gradient.flatten(0, 1)
        of_weight = _product(of_outputs.T, differences.square_().flatten(0, 1).T)
        # Through the unit length: only what is at right angles to the context passes.
        along = (contexts * of_contexts).sum(dim=-1, keepdim=True)
        of_contexts = of_contexts.sub_(contexts.mul_(along)).div_(lengths)

        of_regions = powers @ of_contexts
        of_scores = (regions @ of_contexts.mT).mul_(powers)
        attention = powers.log()
        for span in ctx.spans:
            # Through the softmax's temperature and the unit length over the words of each text.
            part, direction = _by_text(of_scores, span), _by_text(attention, span) / SMOOTH
            norm = norms[..., span.texts, None]
            along = (direction * part).sum(dim=-1, keepdim=True) * (norm / (norm - EPS).clamp_min(EPS**2))
            part.sub_(direction * along).mul_(SMOOTH / norm)
        of_scores = torch.where(attention > 0, of_scores, of_scores * SLOPE)
        of_regions += _product(of_scores, words.T)
        of_words += _product(of_scores.flatten(0, 1).T, regions.flatten(0, 1).T)
        return of_regions, of_words, None, of_weight, of_outputs.sum(dim=0)


def _attention(regions: Tensor, words: Tensor, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
    """exp(smoothed attention), n x k x t, and the norms of the scores over each text, n x k x texts."""
    powers = F.leaky_relu(_product(regions, words), SLOPE)
    norms = []
    for span in spans:
        part = _by_text(powers, span)
        norm = torch.linalg.vector_norm(part, dim=-1) + EPS
        part.div_(norm[..., None])
        norms.append(norm)
    return powers.mul_(SMOOTH).exp_(), torch.cat(norms, dim=-1)


def _by_text(x: Tensor, span: Span) -> Tensor:
    """A view of the span's words by text. x: n x k x t. Returns n x k x texts x length."""
    return x[..., span.words].view(*x.shape[:2], -1, span.length)


def _contexts(powers: Tensor, regions: Tensor) -> tuple[Tensor, Tensor]:
    """What each word sees of each image at unit length, n x t x d, and the length it had."""
    contexts = powers.mT @ regions
    lengths = torch.linalg.vector_norm(contexts, dim=-1, keepdim=True) + EPS**2
    return contexts.div_(lengths), lengths
