"""SCAN: stacked cross attention (Lee et al., ECCV 2018), from texts to images or from images to texts."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.blocks import TextBlock, recomputed, score_matrix, score_pairs
from truepair.matchers.encoders import RegionEncoder, WordEncoder, mean_over
from truepair.matchers.kernels import EPS, SLOPE, Span, exactly, l2norm, linear

Direction = Literal["t2i", "i2t"]
Aggregation = Literal["lse", "mean", "max", "sum"]


@dataclass(frozen=True)
class SCANConfig:
    """Sizes and variant. direction: "t2i" attends from words to regions, "i2t" from regions to words.

    smooth: inverse temperature of the attention; None means the published 9 for t2i and 4 for i2t. lse_weight:
    inverse temperature of aggregation="lse" (log of summed exponentials); None means 6 for t2i and 5 for i2t.
    """

    image_width: int = 2048
    vocabulary_size: int = 10_000
    word_width: int = 300
    embedding: int = 1024
    layers: int = 1
    bidirectional: bool = True
    dropout: float = 0.0
    direction: Direction = "t2i"
    aggregation: Aggregation = "lse"
    smooth: float | None = None
    lse_weight: float | None = None

    @property
    def attention_smooth(self) -> float:
        """The inverse temperature of the attention."""
        return self.smooth or {"t2i": 9.0, "i2t": 4.0}[self.direction]

    @property
    def aggregation_weight(self) -> float:
        """The inverse temperature of the aggregation by log-sum-exp."""
        return self.lse_weight or {"t2i": 6.0, "i2t": 5.0}[self.direction]


class SCAN(Matcher):
    """The cosine of every word (or region) with what it attends to on the other side, aggregated over all."""

    pairs_are_costly = True

    def __init__(self, config: SCANConfig) -> None:
        super().__init__()
        self.config = config
        self.image_encoder = RegionEncoder(config.image_width, config.embedding)
        self.text_encoder = WordEncoder(
            config.vocabulary_size,
            config.word_width,
            config.embedding,
            config.layers,
            config.bidirectional,
            config.dropout,
        )

    def encode_images(self, regions: Tensor, mask: Tensor | None = None) -> ImageCodes:
        """regions: n x k x features. Unit regions; the global vector is their mean at unit length."""
        codes, mask = self.image_encoder(regions, mask)
        return ImageCodes(codes, l2norm(mean_over(codes, mask)), mask)

    def encode_texts(self, tokens: Tensor, lengths: Tensor) -> TextCodes:
        """tokens: m x t. lengths: m. Unit words; the global vector is their mean at unit length."""
        words = l2norm(self.text_encoder(tokens, lengths))
        return TextCodes(words, l2norm(words.sum(dim=1) / lengths[:, None]), lengths)

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The published score, n x m."""
        regions = images.regions.shape[1]
        return score_matrix(
            images, texts, lambda part, block: recomputed(self._score_block, part, block), width=regions
        )

    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The published score of the listed pairs."""

        def score(images: ImageCodes, texts: TextCodes, _: Tensor) -> Tensor:
            with exactly(images.regions):
                scores = (images.regions @ texts.words.mT)[:, :, None]
                word_products = (texts.words @ texts.words.mT)[:, None]
                return self._score(scores, images, texts.words[:, None], word_products).squeeze(1)

        return score_pairs(images, texts, rows, columns, score)

    def _score_block(self, images: ImageCodes, block: TextBlock) -> Tensor:
        with exactly(images.regions):
            scores = linear(images.regions, block.words)
            parts = [self._score_span(scores, images, block.words, span) for span in block.spans]
            return torch.cat(parts, dim=1)

    def _score_span(self, scores: Tensor, images: ImageCodes, words: Tensor, span: Span) -> Tensor:
        n, k, _ = scores.shape
        words = words[span.words].view(1, -1, span.length, words.shape[-1])
        by_text = scores[..., span.words].reshape(n, k, -1, span.length)
        return self._score(by_text, images, words, words @ words.mT)

    def _score(self, scores: Tensor, images: ImageCodes, words: Tensor, word_products: Tensor) -> Tensor:
        """scores: n x k x c x t. words: (n or 1) x c x t x d. word_products: (n or 1) x c x t x t. Returns n x c.

        The attended vector itself is never made. Its product with the query is a weighted sum of scores, and its
        length follows from the products among the vectors that are mixed.
        """
        if self.config.direction == "t2i":
            weights = region_attention(scores, self.config.attention_smooth, images.mask)
            products = images.regions @ images.regions.mT
            squared = (weights * (products @ weights.flatten(2)).view_as(weights)).sum(dim=1)
            similarity = _cosine((weights * scores).sum(dim=1), squared, words.square().sum(dim=-1))
            return self._aggregate(similarity, None)
        weights = word_attention(scores, self.config.attention_smooth)
        squared = ((weights.transpose(1, 2) @ word_products) * weights.transpose(1, 2)).sum(dim=-1)
        lengths = images.regions.square().sum(dim=-1)[:, None]
        similarity = _cosine((weights * scores).sum(dim=-1).transpose(1, 2), squared, lengths)
        return self._aggregate(similarity, images.mask)

    def _aggregate(self, similarity: Tensor, mask: Tensor | None) -> Tensor:
        """similarity: n x c x queries. mask: n x queries. Returns n x c."""
        real = None if mask is None else mask[:, None]
        if self.config.aggregation == "lse":
            weighed = similarity * self.config.aggregation_weight
            weighed = weighed if real is None else weighed.masked_fill(~real, -torch.inf)
            return weighed.logsumexp(dim=-1) / self.config.aggregation_weight
        if self.config.aggregation == "max":
            return (similarity if real is None else similarity.masked_fill(~real, -torch.inf)).amax(dim=-1)
        total = (similarity if real is None else similarity.masked_fill(~real, 0)).sum(dim=-1)
        if self.config.aggregation == "sum":
            return total
        return total / (similarity.shape[-1] if real is None else real.sum(dim=-1))


def region_attention(scores: Tensor, smooth: float, mask: Tensor | None = None) -> Tensor:
    """How much each word looks at each region. scores, result: n x k x c x t; sums to 1 over the real regions."""
    scores = l2norm(F.leaky_relu(scores, SLOPE)) * smooth
    if mask is not None:
        scores = scores.masked_fill(~mask[:, :, None, None], -torch.inf)
    return scores.softmax(dim=1)


def word_attention(scores: Tensor, smooth: float) -> Tensor:
    """How much each region looks at each word. scores, result: n x k x c x t; sums to 1 over the words.

    Regions that are masked are zero and change nothing: the norm over the regions does not see them.
    """
    scores = F.leaky_relu(scores, SLOPE)
    norm: Tensor = torch.linalg.vector_norm(scores, dim=1, keepdim=True)
    return (scores / (norm + EPS) * smooth).softmax(dim=-1)


def _cosine(product: Tensor, squared: Tensor, other_squared: Tensor) -> Tensor:
    """The cosine from a product and two squared lengths; 0 where a length is 0, with a gradient of 0."""
    return product / (squared * other_squared).clamp_min(EPS**2).sqrt()
