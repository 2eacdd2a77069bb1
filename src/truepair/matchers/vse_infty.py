"""VSE-infinity: learned pooling of sorted features (Chen et al., CVPR 2021).

The text encoder is the bidirectional GRU of the noisy-correspondence literature (CRCL), not BERT.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from truepair.losses.precision import full_precision
from truepair.matchers.base import ImageCodes, Matcher, TextCodes, lengths_to_mask
from truepair.matchers.encoders import (
    BatchNorm,
    WordEncoder,
    checked_regions,
    with_constant_bias,
)
from truepair.matchers.kernels import Linear, l2norm, linear
from truepair.matchers.recurrent import gru_states


@dataclass(frozen=True)
class VSEInftyConfig:
    """Sizes and switches of VSE-infinity; the defaults are the published ones."""

    image_width: int = 2048
    vocabulary_size: int = 10_000
    word_width: int = 300
    embedding: int = 1024
    image_hidden: int | None = None  # hidden layer of the image MLP; None means half the embedding
    layers: int = 1
    position_width: int = 32  # of the sine codes that the pooling weights are computed from
    pooling_hidden: int = 32
    temperature: float = 0.1  # of the softmax over ranks
    padding_in_statistics: bool = False  # padded regions count in the image MLP's batch norm, as published


class RankPooling(nn.Module):
    """Generalized pooling: a weighted sum of each channel's sorted values, with weights learned per rank."""

    def __init__(self, position_width: int, hidden: int, temperature: float) -> None:
        super().__init__()
        self.position_width, self.temperature = position_width, temperature
        self.gru = nn.GRU(position_width, hidden, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden, 1, bias=False)

    def weights(self, counts: Tensor) -> Tensor:
        """counts: n, the rows each item has. Returns n x (largest count): sums to 1, 0 past the count."""
        # The weights depend on the count alone: every distinct count is computed once.
        distinct, index = torch.unique(counts, return_inverse=True)
        width = int(distinct[-1])
        codes = position_codes(width, self.position_width).to(self.linear.weight)
        states = gru_states(self.gru, codes.expand(len(distinct), -1, -1), distinct)
        scores = self.linear(states).squeeze(-1) / self.temperature
        scores = scores.masked_fill(~lengths_to_mask(distinct, width), -math.inf)
        weights: Tensor = scores.softmax(dim=-1)
        return weights[index]

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """features: n x k x d, finite where masked. mask: n x k, in any arrangement. Returns n x d."""
        weights = self.weights(mask.sum(dim=1))
        columns = features.transpose(1, 2).contiguous()
        # Values of missing rows sort to the end, where the weights are zero.
        lowest = torch.finfo(features.dtype).min
        order = descending_order(columns.detach().masked_fill(~mask[:, None], lowest))
        ranked = columns.gather(-1, order[..., : weights.shape[1]])
        return torch.einsum("ndk,nk->nd", ranked, weights)


class ImageEncoder(nn.Module):
    """A linear layer plus an MLP with batch norm, both on every region."""

    def __init__(self, config: VSEInftyConfig) -> None:
        super().__init__()
        hidden = config.image_hidden or config.embedding // 2
        self.fc = Linear(config.image_width, config.embedding)
        self.hidden = with_constant_bias(nn.Linear(config.image_width, hidden))
        self.norm = BatchNorm(hidden)
        self.out = nn.Linear(hidden, config.embedding)
        self.padding_in_statistics = config.padding_in_statistics

    def forward(self, regions: Tensor, mask: Tensor | None) -> Tensor:
        """regions: n x k x features, zero where masked. Returns n x k x d, zero where masked."""
        if mask is None or (self.training and self.padding_in_statistics):
            codes = self._rows(regions.flatten(0, 1)).view(*regions.shape[:2], -1)
            return codes if mask is None else codes.masked_fill(~mask[..., None], 0)
        real = mask.flatten().nonzero()[:, 0]
        rows = self._rows(regions.flatten(0, 1).index_select(0, real))
        codes = rows.new_zeros(mask.numel(), rows.shape[1]).index_copy(0, real, rows)
        return codes.view(*regions.shape[:2], -1)

    def _rows(self, rows: Tensor) -> Tensor:
        hidden = F.relu(self.norm(linear(rows, self.hidden.weight, self.hidden.bias)))
        codes: Tensor = linear(hidden, self.out.weight, self.out.bias) + self.fc(rows)
        return codes


class VSEInfty(Matcher):
    """One vector per image and per text, pooled by learned rank weights; their cosine is the score."""

    def __init__(self, config: VSEInftyConfig) -> None:
        super().__init__()
        self.config = config
        self.image_encoder = ImageEncoder(config)
        self.text_encoder = WordEncoder(
            config.vocabulary_size, config.word_width, config.embedding, config.layers
        )
        pooling = (config.position_width, config.pooling_hidden, config.temperature)
        self.image_pooling, self.text_pooling = RankPooling(*pooling), RankPooling(*pooling)

    def encode_images(self, regions: Tensor, mask: Tensor | None = None) -> ImageCodes:
        """regions: n x k x features; the codes of regions are those before pooling, not normalised."""
        regions, mask = checked_regions(regions, mask, self.config.image_width)
        codes = self.image_encoder(regions.to(self.image_encoder.fc.weight.dtype), mask)
        real = codes.new_ones(codes.shape[:2], dtype=torch.bool) if mask is None else mask
        return ImageCodes(codes, l2norm(self.image_pooling(codes, real)), mask)

    def encode_texts(self, tokens: Tensor, lengths: Tensor) -> TextCodes:
        """tokens: m x t. lengths: m; the codes of words are those before pooling, not normalised."""
        words = self.text_encoder(tokens, lengths)
        vectors = l2norm(self.text_pooling(words, lengths_to_mask(lengths, words.shape[1])))
        return TextCodes(words, vectors, lengths)

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The cosine, n x m."""
        return images.vectors @ texts.vectors.T

    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The cosine of the listed pairs."""
        return (images.vectors[rows] * texts.vectors[columns]).sum(dim=-1)


def descending_order(x: Tensor) -> Tensor:
    """The indices that sort the last axis, largest first.

    numpy's vectorised sort of short rows takes a sixth of torch's time on a processor (128 x 256 rows of 36).
    """
    if x.device.type == "cpu":
        return torch.from_numpy(np.argsort(-full_precision(x.detach()).numpy(), axis=-1))
    return x.argsort(dim=-1, descending=True)


def position_codes(length: int, width: int) -> Tensor:
    """Sine and cosine codes of the positions 0 to length - 1, length x width (Vaswani et al., 2017)."""
    positions = torch.arange(length, dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    return torch.stack([(positions * rates).sin(), (positions * rates).cos()], dim=-1).flatten(1)
