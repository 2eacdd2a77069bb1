"""Arithmetic that takes most of the time: matrix products, and words of texts attending to regions of images."""

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

ONEDNN_FROM = 2**22  # multiplications
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
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return F.linear(x, weight, bias)


def _onednn_serves(x: Tensor, weight: Tensor) -> bool:
    return (
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() * weight.shape[-2] >= ONEDNN_FROM
        and not torch.is_autocast_enabled("cpu")
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same as linear, for tensors that need no gradient."""
    if _onednn_serves(x, weight):
        result: Tensor = _ONEDNN(x, weight, bias, "none", [], "")  # type: ignore[misc]
        return result
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

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


def short_softmax(x: Tensor, real: Tensor | None = None) -> Tensor:
    """Softmax of the last axis. On a processor torch's takes seven times longer than exp and sum on short rows.

    real: 1 where an entry counts, else 0; broadcasts to x. Every row has one that does.
    """
    if x.device.type == "cpu" and x.numel() and float(x.detach().abs().amax()) < 60:  # exp stays in range
        powers = x.exp() if real is None else x.exp().mul_(real)
        softmax: Tensor = powers / powers.sum(dim=-1, keepdim=True)
        return softmax
    return torch.softmax(x if real is None else x.masked_fill(real == 0, -torch.inf), dim=-1)


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


class Owners(NamedTuple):
    """Which text each word laid end to end belongs to, t; padding belongs to one more. texts: how many there are."""

    of_word: Tensor
    texts: int


def owners_of(lengths: Tensor, words: int, device: torch.device) -> Owners:
    """Of texts laid end to end, padded to so many words. lengths: one per text."""
    texts = len(lengths)
    of_word = torch.full((words,), texts, dtype=torch.int64)
    of_word[: int(lengths.sum())] = torch.arange(texts).repeat_interleave(lengths)
    return Owners(of_word.to(device), texts)


def aligned(regions: Tensor, words: Tensor, owners: Owners, weight: Tensor, bias: Tensor) -> Tensor:
    """Alignment vectors, l2norm(linear(squared_distances)), of every image with every word of a block, n x t x s.

    regions: n x k x d, zero where masked. words: t x d, texts laid end to end. weight: s x d. bias: s. One image
    alone is the fastest on a processor: all products are tall. Of the large temporaries only n x t x k outlives the
    call, n x t x d is made again.
    """
    with exactly(regions):
        result: Tensor = _Aligned.apply(  # type: ignore[no-untyped-call]
            full_precision(regions), full_precision(words), owners, weight, bias
        )
    return result


class _Aligned(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, regions: Tensor, words: Tensor, owners: Owners, weight: Tensor, bias: Tensor
    ) -> Tensor:
        powers, norms = _attention(regions, words, owners)
        contexts, _ = _contexts(powers, regions)
        outputs = product(contexts.sub_(words).square_(), weight, bias)
        lengths = torch.linalg.vector_norm(outputs, dim=-1, keepdim=True).add_(EPS)
        outputs.div_(lengths)
        ctx.save_for_backward(regions, words, owners.of_word, weight, powers, norms, outputs, lengths)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        regions, words, of_word, weight, powers, norms, outputs, lengths = ctx.saved_tensors
        of_outputs = _through_unit_length(gradient, outputs, lengths, EPS)

        contexts, lengths = _contexts(powers, regions)
        differences = contexts - words
        of_contexts = product(of_outputs * 2, weight.T).mul_(differences)
        of_outputs = of_outputs.flatten(0, 1)
        of_weight = product(of_outputs.T, differences.square_().flatten(0, 1).T)
        across = _through_unit_length(of_contexts, contexts, lengths, EPS**2)

        of_regions = _each(powers.mT, across)
        of_scores = _each(across, regions.mT).mul_(powers)
        # Through the softmax's temperature and the unit length over the words of each text.
        directions = powers.log().div_(SMOOTH)
        along = torch.zeros_like(norms).index_add_(1, of_word, directions * of_scores)
        along.mul_(norms / (norms - EPS).clamp_min(EPS**2))
        of_scores.sub_(along.index_select(1, of_word).mul_(directions))
        of_scores.mul_((SMOOTH / norms).index_select(1, of_word))
        of_scores = torch.ops.aten.leaky_relu_backward(of_scores, directions, SLOPE, True)
        of_regions += _each(of_scores.mT, words.expand(len(regions), -1, -1))
        of_words = product(of_scores.transpose(0, 1).flatten(1), regions.flatten(0, 1).T)
        of_words -= of_contexts.sum(dim=0)
        return of_regions, of_words, None, of_weight, of_outputs.sum(dim=0)


def _each(left: Tensor, right: Tensor) -> Tensor:
    """left @ right image by image, n x a x b and n x b x c; the fastest product if there is one image."""
    return product(left[0], right[0].mT)[None] if len(left) == 1 else left @ right


def _attention(regions: Tensor, words: Tensor, owners: Owners) -> tuple[Tensor, Tensor]:
    """exp(smoothed attention), n x t x k, and the norms of the scores over each text, n x (texts + 1) x k."""
    powers = F.leaky_relu_(_each(words.expand(len(regions), -1, -1), regions.mT), SLOPE)
    norms = powers.new_zeros(len(regions), owners.texts + 1, regions.shape[1])
    norms.index_add_(1, owners.of_word, powers.square()).sqrt_().add_(EPS)
    return powers.div_(norms.index_select(1, owners.of_word)).mul_(SMOOTH).exp_(), norms


def _contexts(powers: Tensor, regions: Tensor) -> tuple[Tensor, Tensor]:
    """What each word sees of each image at unit length, n x t x d, and the length it had."""
    contexts = _each(powers, regions)
    lengths = torch.linalg.vector_norm(contexts, dim=-1, keepdim=True).add_(EPS**2)
    return contexts.div_(lengths), lengths


def _through_unit_length(gradient: Tensor, unit: Tensor, lengths: Tensor, eps: float) -> Tensor:
    """The gradient of x from that of unit = x / lengths, lengths = |x| + eps: what is along x does not pass."""
    along = (unit * gradient).sum(dim=-1, keepdim=True)
    along.mul_(lengths / (lengths - eps).clamp_min(EPS**2))
    return torch.addcmul(gradient, unit, along, value=-1).div_(lengths)
