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


def short_softmax_(x: Tensor, real: Tensor | None = None) -> Tensor:
    """Softmax of the last axis, in place where that is faster: torch's takes seven times longer on short rows.

    real: 1 where an entry counts, else 0; broadcasts to x. Every row has one that does. Without a gradient.
    """
    if x.device.type == "cpu" and x.numel() and _in_range_of_exp(x):
        powers = x.exp_() if real is None else x.exp_().mul_(real)
        return powers.div_(powers.sum(dim=-1, keepdim=True))
    return torch.softmax(x if real is None else x.masked_fill(real == 0, -torch.inf), dim=-1)


def _in_range_of_exp(x: Tensor) -> bool:
    low, high = torch.aminmax(x)
    return bool(low > -60) and bool(high < 60)


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

    regions: n x k x d, zero where masked. words: t x d, texts laid end to end. weight: s x d. bias: s. Of the large
    temporaries only t x n x k outlives the call; n x t x d is made again, on a processor for one image at a time,
    where it stays in the cache.
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
        outputs = regions.new_empty(len(regions), len(words), len(weight))
        for some in _at_once(regions):
            contexts, lengths = _contexts(powers, regions, some)
            distances = torch.addcdiv(words, contexts, lengths, value=-1, out=contexts).square_()
            outputs[some] = product(distances, weight, bias)
        lengths = torch.linalg.vector_norm(outputs, dim=-1, keepdim=True).add_(EPS)
        outputs.div_(lengths)
        ctx.save_for_backward(regions, words, owners.of_word, weight, powers, norms, outputs, lengths)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        regions, words, of_word, weight, powers, norms, outputs, lengths = ctx.saved_tensors
        of_outputs = _through_unit_length(gradient, outputs, lengths, EPS)
        of_regions, of_scores = torch.empty_like(regions), torch.empty_like(powers)
        of_words, of_weight = torch.zeros_like(words), torch.zeros_like(weight)
        doubled = 2 * weight.T
        for some in _at_once(regions):
            contexts, lengths = _contexts(powers, regions, some)
            differences = contexts.div_(lengths) - words
            of_contexts = product(of_outputs[some], doubled).mul_(differences)
            of_words -= of_contexts.sum(dim=0) if len(of_contexts) > 1 else of_contexts[0]
            squares = differences.square_().flatten(0, 1)
            of_weight += product(of_outputs[some].flatten(0, 1).T, squares.T)
            # Through the unit length: what is along a context does not pass.
            along = torch.mul(contexts, of_contexts, out=differences).sum(dim=-1, keepdim=True)
            of_contexts.addcmul_(contexts, along, value=-1).div_(lengths)
            of_regions[some] = _each(powers[:, some].permute(1, 2, 0), of_contexts)
            of_scores[:, some] = _each(of_contexts, regions[some].mT).transpose(0, 1)
        of_scores.mul_(powers)
        # Through the softmax's temperature and the unit length over the words of each text.
        directions = powers.log().div_(SMOOTH)
        along = torch.zeros_like(norms).index_add_(0, of_word, directions * of_scores)
        along.mul_(norms / (norms - EPS).clamp_min(EPS**2))
        of_scores.sub_(along.index_select(0, of_word).mul_(directions))
        of_scores.mul_((SMOOTH / norms).index_select(0, of_word))
        of_scores = torch.ops.aten.leaky_relu_backward(of_scores, directions, SLOPE, True).flatten(1)
        of_regions += product(of_scores.T, words.T).view_as(regions)
        of_words += product(of_scores, regions.flatten(0, 1).T)
        return of_regions, of_words, None, of_weight, of_outputs.sum(dim=(0, 1))


def _at_once(regions: Tensor) -> list[slice]:
    """Which images go together: one after the other on a processor, where tall products are the fastest; else all."""
    step = 1 if regions.device.type == "cpu" else max(1, len(regions))
    return [slice(i, i + step) for i in range(0, len(regions), step)]


def _each(left: Tensor, right: Tensor) -> Tensor:
    """left @ right image by image, n x a x b and n x b x c; the fastest product if there is one image."""
    return product(left[0], right[0].mT)[None] if len(left) == 1 else left @ right


def _attention(regions: Tensor, words: Tensor, owners: Owners) -> tuple[Tensor, Tensor]:
    """exp(smoothed attention), t x n x k, and the norms of the scores over each text, (texts + 1) x n x k."""
    powers = F.leaky_relu_(product(words, regions.flatten(0, 1)), SLOPE).view(len(words), *regions.shape[:2])
    norms = powers.new_zeros(owners.texts + 1, *regions.shape[:2])
    norms.index_add_(0, owners.of_word, powers.square()).sqrt_().add_(EPS)
    return powers.div_((norms / SMOOTH).index_select(0, owners.of_word)).exp_(), norms


def _contexts(powers: Tensor, regions: Tensor, some: slice) -> tuple[Tensor, Tensor]:
    """What each word sees of some images, n x t x d, and its length."""
    contexts = _each(powers[:, some].transpose(0, 1), regions[some])
    return contexts, torch.linalg.vector_norm(contexts, dim=-1, keepdim=True).add_(EPS**2)


def _through_unit_length(gradient: Tensor, unit: Tensor, lengths: Tensor, eps: float) -> Tensor:
    """The gradient of x from that of unit = x / lengths, lengths = |x| + eps: what is along x does not pass."""
    along = (unit * gradient).sum(dim=-1, keepdim=True)
    along.mul_(lengths / (lengths - eps).clamp_min(EPS**2))
    return torch.addcmul(gradient, unit, along, value=-1).div_(lengths)
