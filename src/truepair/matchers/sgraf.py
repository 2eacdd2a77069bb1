"""SGRAF: similarity graph reasoning (SGR) and similarity attention filtration (SAF), Diao et al., AAAI 2021.

Both describe a pair by alignment vectors: one of the whole image with the whole text, one of every word with the
regions it attends to. SGR lets these vectors reason with each other in a graph, SAF weighs them; SGRAF is the mean
of both scores.
"""

from dataclasses import dataclass, fields
from typing import overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from truepair.losses.precision import full_precision
from truepair.matchers import processes
from truepair.matchers.alignment import AlignmentConfig, AlignmentMatcher, nodes_by_length
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.blocks import TextBlock, recomputed, score_matrix
from truepair.matchers.encoders import with_constant_bias
from truepair.matchers.graph import GraphStep, Layout, rows_of_matrix, rows_of_pairs
from truepair.matchers.kernels import EPS, Linear, exactly, l2norm


@dataclass(frozen=True)
class SGRConfig(AlignmentConfig):
    """SGR's sizes. steps: rounds of reasoning."""

    steps: int = 3


@dataclass(frozen=True)
class SAFConfig(AlignmentConfig):
    """SAF's sizes."""


@dataclass(frozen=True)
class SGRAFConfig(SGRConfig):
    """Sizes of both halves."""


class SGR(AlignmentMatcher):
    """Similarity graph reasoning: the global node after a few rounds among all nodes gives the score."""

    pairs_are_costly = True

    def __init__(self, config: SGRConfig) -> None:
        super().__init__(config)
        self.steps = nn.ModuleList(GraphStep(config.similarity) for _ in range(config.steps))

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The score before the sigmoid, n x m."""
        folded = [step.folded() for step in self._steps]

        def score(images: ImageCodes, block: TextBlock) -> Tensor:
            rows, layout = rows_of_matrix(*self.alignments(images, block), block.spans)
            parts = self._evaluate(rows, layout, folded)
            return torch.cat([values.view(len(images), -1) for values in parts], dim=1)

        return score_matrix(images, texts, score, width=self.config.embedding, one_by_one=True)

    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The logits of the listed pairs, at a cost that grows with their number only."""
        folded = [step.folded() for step in self._steps]

        return self.score_pairs(
            images, texts, rows, columns, lambda groups, _: self._evaluate(*rows_of_pairs(groups), folded)
        )

    @property
    def _steps(self) -> list[GraphStep]:
        return [step for step in self.steps if isinstance(step, GraphStep)]

    def _evaluate(self, rows: Tensor, layout: Layout, folded: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """rows: nodes of pairs. Returns p logits per bucket."""
        *before, last = zip(self._steps, folded, strict=True)
        for step, matrix in before:
            rows = step(rows, layout, matrix)
        step, matrix = last
        # Nothing but the global node is read after the last round.
        values = self.evaluation(step(rows, layout, matrix, first_only=True))
        return [value.flatten() for value in layout.first.cut(values)]


class Filtration(nn.Module):
    """Weighs the alignment vectors of a pair with learned gates and adds them up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = with_constant_bias(Linear(width, 1))
        self.norm = nn.BatchNorm1d(1)

    def scores(self, nodes: Tensor) -> Tensor:
        """nodes: ... x t x s. Returns ... x t, before the norm."""
        with exactly(nodes):  # they go into a batch norm's statistics
            scores: Tensor = self.attention(full_precision(nodes))
        return scores.squeeze(-1)

    def forward(self, nodes: Tensor, scores: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """nodes: ... x t x s. scores: ... x t. mean, variance: of the norm, as wide as scores. Returns ... x s."""
        scale = (variance + self.norm.eps).rsqrt() * self.norm.weight
        gates = ((scores - mean) * scale + self.norm.bias).sigmoid()
        weights = gates / (gates.sum(dim=-1, keepdim=True) + EPS)
        return l2norm((weights[..., None, :] @ nodes).squeeze(-2))

    @torch.no_grad()
    def remember(self, means: Tensor, variances: Tensor, counts: Tensor) -> None:
        """Move the running statistics once per text, in the order given, as published; in one closed form.

        means, variances: m, the latter over counts values each, without Bessel's correction.
        """
        momentum, texts = self.norm.momentum, len(means)
        assert momentum is not None  # None would ask for a cumulative mean, which nobody sets here
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        assert self.norm.num_batches_tracked is not None
        ages = torch.arange(texts - 1, -1, -1, device=means.device, dtype=means.dtype)
        shares = momentum * (1 - momentum) ** ages
        unbiased = variances * counts / (counts - 1)
        kept = means.new_tensor((1 - momentum) ** texts)
        # Processes that share a batch have a part of its texts each; the statistics see all of them, in order.
        own = torch.stack([kept, (shares * means).sum(), (shares * unbiased).sum(), means.new_tensor(texts)])
        for kept, mean, variance, count in processes.of_every(own):
            self.norm.running_mean.mul_(kept).add_(mean)
            self.norm.running_var.mul_(kept).add_(variance)
            self.norm.num_batches_tracked += count.long()


class SAF(AlignmentMatcher):
    """Similarity attention filtration: the gated sum of the alignment vectors gives the score.

    As published, every text is a batch of its own for the gates' batch norm while training: its statistics run over
    all images and all its alignment vectors, and the running statistics move once per text. Calling logits in
    training mode moves them; pair_logits never does. In training mode pair_logits takes the statistics of the
    listed texts from all images without a gradient: the values equal those of logits, the gradients leave out what
    flows through the statistics.
    """

    def __init__(self, config: SAFConfig) -> None:
        super().__init__(config)
        self.filtration = Filtration(config.similarity)

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The score before the sigmoid, n x m."""
        if not self.training:
            width = self.config.embedding
            return score_matrix(images, texts, self._score_block, width=width, one_by_one=True)
        logits, means, variances = self._with_statistics(images, texts)
        self.filtration.remember(means, variances, len(images) * (texts.lengths + 1))
        return logits

    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The logits of the listed pairs; in evaluation mode at a cost that grows with their number only."""
        mean, variance = self._running()
        if self.training and len(rows):
            listed, index = torch.unique(columns, return_inverse=True)
            with torch.no_grad():
                _, means, variances = self._with_statistics(images, texts.take(listed))
            mean, variance = means[index, None], variances[index, None]
        mean, variance = mean.expand(len(rows), 1), variance.expand(len(rows), 1)

        def evaluate(groups: list[Tensor], places: list[Tensor]) -> list[Tensor]:
            return [
                self._evaluate(nodes, self.filtration.scores(nodes), mean[where], variance[where])
                for nodes, where in zip(groups, places, strict=True)
            ]

        return self.score_pairs(images, texts, rows, columns, evaluate)

    def _running(self) -> tuple[Tensor, Tensor]:
        norm = self.filtration.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return norm.running_mean, norm.running_var

    def _score_block(self, images: ImageCodes, block: TextBlock) -> Tensor:
        whole, local = self.alignments(images, block)
        return recomputed(self._filter_block, whole, local, block)

    def _filter_block(self, whole: Tensor, local: Tensor, block: TextBlock) -> Tensor:
        parts = [
            self._evaluate(nodes, self.filtration.scores(nodes), *self._running())
            for nodes in nodes_by_length(whole, local, block)
        ]
        return torch.cat(parts, dim=1)

    def _with_statistics(self, images: ImageCodes, texts: TextCodes) -> tuple[Tensor, Tensor, Tensor]:
        """Logits n x m by each text's own statistics, and these: means and variances, m."""
        means, variances = images.vectors.new_zeros(2, len(texts)).unbind()

        def own_statistics(whole: Tensor, local: Tensor, block: TextBlock) -> tuple[Tensor, Tensor, Tensor]:
            logits, statistics = [], []
            for nodes in nodes_by_length(whole, local, block):
                scores = self.filtration.scores(nodes)
                variance, mean = torch.var_mean(scores, dim=(0, 2), correction=0)
                logits.append(self._evaluate(nodes, scores, mean[:, None], variance[:, None]))
                statistics.append(torch.stack([mean, variance]).detach())
            mean, variance = torch.cat(statistics, dim=1)
            return torch.cat(logits, dim=1), mean, variance

        def score(images: ImageCodes, block: TextBlock) -> Tensor:
            whole, local = self.alignments(images, block)
            logits, means[block.columns], variances[block.columns] = recomputed(
                own_statistics, whole, local, block
            )
            return logits

        logits = score_matrix(
            images, texts, score, width=self.config.embedding, all_images=True, one_by_one=True
        )
        return logits, means, variances

    def _evaluate(self, nodes: Tensor, scores: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """nodes: ... x t x s. Returns ... logits."""
        value: Tensor = self.evaluation(self.filtration(nodes, scores, mean, variance))
        return value.squeeze(-1)


class SGRAF(Matcher):
    """The mean of an SGR's and an SAF's score, two networks with encoders of their own.

    Codes hold those of both, SGR's first along the last axis.
    """

    def __init__(self, config: SGRAFConfig) -> None:
        super().__init__()
        self.config = config
        shared = {field.name: getattr(config, field.name) for field in fields(SAFConfig)}
        self.sgr, self.saf = SGR(SGRConfig(**shared, steps=config.steps)), SAF(SAFConfig(**shared))

    def encode_images(self, regions: Tensor, mask: Tensor | None = None) -> ImageCodes:
        """regions: n x k x features."""
        a, b = self.sgr.encode_images(regions, mask), self.saf.encode_images(regions, mask)
        return ImageCodes(
            torch.cat([a.regions, b.regions], -1), torch.cat([a.vectors, b.vectors], -1), a.mask
        )

    def encode_texts(self, tokens: Tensor, lengths: Tensor) -> TextCodes:
        """tokens: m x t. lengths: m."""
        a, b = self.sgr.encode_texts(tokens, lengths), self.saf.encode_texts(tokens, lengths)
        return TextCodes(torch.cat([a.words, b.words], -1), torch.cat([a.vectors, b.vectors], -1), lengths)

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The logit of the mean score, so that score(logits) is the similarity, n x m."""
        (i, j), (t, u) = _halves(images), _halves(texts)
        return logit_of_mean(self.sgr.logits(i, t), self.saf.logits(j, u))

    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The logit of the mean score of the listed pairs."""
        (i, j), (t, u) = _halves(images), _halves(texts)
        return logit_of_mean(
            self.sgr.pair_logits(i, t, rows, columns), self.saf.pair_logits(j, u, rows, columns)
        )

    def score(self, logits: Tensor) -> Tensor:
        """The published score: a sigmoid."""
        return logits.sigmoid()

    def image_vectors(self, images: ImageCodes) -> Tensor:
        """Both vectors side by side at unit length: their dot products are the mean of the two cosines."""
        return images.vectors / 2**0.5

    def text_vectors(self, texts: TextCodes) -> Tensor:
        """Both vectors side by side at unit length."""
        return texts.vectors / 2**0.5


def logit_of_mean(a: Tensor, b: Tensor) -> Tensor:
    """The logit of the mean of two sigmoids, exact for logits of any size."""
    yes = torch.logaddexp(F.logsigmoid(a), F.logsigmoid(b))
    no = torch.logaddexp(F.logsigmoid(-a), F.logsigmoid(-b))
    return yes - no


@overload
def _halves(codes: ImageCodes) -> tuple[ImageCodes, ImageCodes]: ...
@overload
def _halves(codes: TextCodes) -> tuple[TextCodes, TextCodes]: ...
def _halves(codes: ImageCodes | TextCodes) -> tuple[ImageCodes | TextCodes, ImageCodes | TextCodes]:
    """SGR's and SAF's part of joint codes."""
    vectors = codes.vectors.chunk(2, dim=-1)
    if isinstance(codes, ImageCodes):
        regions = codes.regions.chunk(2, dim=-1)
        return ImageCodes(regions[0], vectors[0], codes.mask), ImageCodes(regions[1], vectors[1], codes.mask)
    words = codes.words.chunk(2, dim=-1)
    return TextCodes(words[0], vectors[0], codes.lengths), TextCodes(words[1], vectors[1], codes.lengths)
