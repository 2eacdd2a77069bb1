"""What SGR and SAF share: their encoders, and the alignment vectors that describe a pair of image and text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from truepair.errors import TruepairError
from truepair.matchers import listed
from truepair.matchers.base import ImageCodes, Matcher, TextCodes, lengths_to_mask
from truepair.matchers.blocks import TextBlock, image_groups, score_pairs
from truepair.matchers.encoders import BatchNorm, RegionEncoder, WordEncoder, mean_over, with_constant_bias
from truepair.matchers.kernels import Linear, aligned, exactly, l2norm, squared_distances

RegionNorm = Literal["layer", "slot"]
Evaluate = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class AlignmentConfig:
    """Sizes and switches that SGR and SAF share; the defaults are the published ones except for region_norm.

    region_norm: "slot" is the published batch norm with one channel per place of a region in the list. It needs
    exactly region_slots regions, and their order matters. "layer" normalises every region over its features: as in
    the published norm an average over features, but any number of regions in any order, and the same in training
    and evaluation whatever else is in the batch.
    """

    image_width: int = 2048
    vocabulary_size: int = 10_000
    word_width: int = 300
    embedding: int = 1024
    similarity: int = 256
    layers: int = 1
    bidirectional: bool = True
    dropout: float = 0.4
    region_norm: RegionNorm = "layer"
    region_slots: int = 36


class SlotNorm(BatchNorm):
    """Batch norm with one channel per place of a region, as published."""

    def forward(self, x: Tensor) -> Tensor:
        """x: n x slots x d."""
        if x.shape[1] != self.num_features:
            raise TruepairError(
                f"This matcher has a norm for exactly {self.num_features} regions per image, but images come with "
                f"{x.shape[1]}. Build it with region_norm='layer' to take any number."
            )
        return super().forward(x)


class AttentionPooling(nn.Module):
    """One unit vector from many: each is weighed by how it agrees with the mean of all."""

    def __init__(self, width: int, dropout: float, local_norm: nn.Module, mean_norm: nn.Module) -> None:
        super().__init__()
        self.local = nn.Sequential(Linear(width, width), local_norm, nn.Tanh(), nn.Dropout(dropout))
        mean = Linear(width, width)
        if isinstance(mean_norm, BatchNorm):
            with_constant_bias(mean)
        self.mean = nn.Sequential(mean, mean_norm, nn.Tanh(), nn.Dropout(dropout))
        # Without a bias: it would add the same to every score, and the softmax removes that.
        self.score = Linear(width, 1, bias=False)

    def forward(self, codes: Tensor, mask: Tensor | None) -> Tensor:
        """codes: n x k x d, zero where masked. mask: n x k. Returns n x d."""
        query = self.mean(mean_over(codes, mask)) * self.score.weight
        scores = torch.einsum("nkd,nd->nk", self.local(codes), query)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return l2norm(torch.einsum("nk,nkd->nd", scores.softmax(dim=-1), codes))


class AlignmentMatcher(Matcher):
    """What SGR and SAF share: encoders, and the alignment vectors of every pair."""

    def __init__(self, config: AlignmentConfig) -> None:
        super().__init__()
        self.config: AlignmentConfig = config
        d, s = config.embedding, config.similarity
        self.image_encoder = RegionEncoder(config.image_width, d)
        self.text_encoder = WordEncoder(
            config.vocabulary_size, config.word_width, d, config.layers, config.bidirectional, config.dropout
        )
        slots = SlotNorm(config.region_slots) if config.region_norm == "slot" else nn.LayerNorm(d)
        self.image_pooling = AttentionPooling(d, config.dropout, slots, BatchNorm(d))
        self.text_pooling = AttentionPooling(d, config.dropout, nn.Identity(), nn.Identity())
        self.word_alignment = Linear(d, s)
        self.global_alignment = Linear(d, s)
        self.evaluation = Linear(s, 1)

    def encode_images(self, regions: Tensor, mask: Tensor | None = None) -> ImageCodes:
        """regions: n x k x features. Unit regions, and the unit vector pooled from them."""
        codes, mask = self.image_encoder(regions, mask)
        return ImageCodes(codes, self.image_pooling(codes, mask), mask)

    def encode_texts(self, tokens: Tensor, lengths: Tensor) -> TextCodes:
        """tokens: m x t. lengths: m. Unit words, and the unit vector pooled from them."""
        words = l2norm(self.text_encoder(tokens, lengths))
        vectors = self.text_pooling(words, lengths_to_mask(lengths, words.shape[1]))
        return TextCodes(words, vectors, lengths)

    def score(self, logits: Tensor) -> Tensor:
        """The published score: a sigmoid."""
        return logits.sigmoid()

    def alignments(self, images: ImageCodes, block: TextBlock) -> tuple[Tensor, Tensor]:
        """Alignment vectors of every image with every text of a block: global n x c x s, of words n x t x s."""
        words = self.word_alignment
        local = [
            aligned(part.regions, block.words, block.owners, words.weight, words.bias)
            for part in image_groups(images, images.regions.shape[-1])
        ]
        return self._global(images.vectors[:, None], block.vectors), torch.cat(local)

    def score_pairs(
        self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor, evaluate: Evaluate
    ) -> Tensor:
        """One value per listed pair. evaluate: alignment vectors of pairs in groups with texts of one length,
        p x (t + 1) x s each, and their places in the list, p each; their p values each."""
        if not listed.pays(images, rows):
            return score_pairs(
                images,
                texts,
                rows,
                columns,
                lambda images, texts, places: evaluate([self.pair_alignments(images, texts)], [places])[0],
            )
        values = images.vectors.new_empty(len(rows))
        for chunk in listed.chunks(texts, rows, columns, self.config.similarity):
            groups, places = self._chunk_alignments(images, texts, rows, columns, chunk)
            for where, found in zip(places, evaluate(groups, places), strict=True):
                values[where] = found.to(values.dtype)
        return values

    def _chunk_alignments(
        self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor, chunk: listed.Chunk
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The arguments of evaluate."""
        weight, bias = self.word_alignment.weight, self.word_alignment.bias
        local = torch.cat(
            [
                aligned(images.regions[one.image, None], one.words, one.owners, weight, bias)[0, : one.count]
                for one in chunk.images
            ]
        )
        whole = self._global(images.vectors[rows[chunk.places]], texts.vectors[columns[chunk.places]])
        groups, places = [], []
        for which, words in chunk.by_length():
            groups.append(torch.cat([whole[which, None], local[words]], dim=1))
            places.append(chunk.places[which])
        return groups, places

    def pair_alignments(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """Alignment vectors of image p with text p, all texts of one length, the global one first: p x (t + 1) x s."""
        with exactly(images.regions):
            local = l2norm(self.word_alignment(squared_distances(images.regions, texts.words)))
        return torch.cat([self._global(images.vectors, texts.vectors)[:, None], local], dim=1)

    def _global(self, images: Tensor, texts: Tensor) -> Tensor:
        return l2norm(self.global_alignment((images - texts).square()))


def nodes_by_length(whole: Tensor, local: Tensor, block: TextBlock) -> list[Tensor]:
    """Alignment vectors of each span's pairs, n x texts x (length + 1) x s, the global one first."""
    counts = [span.texts.stop - span.texts.start for span in block.spans]
    sizes = [span.words.stop - span.words.start for span in block.spans]
    padding = local.shape[1] - sum(sizes)
    # One split has one backward pass; slices would each fill a matrix of zeros.
    words = local.split_with_sizes([*sizes, padding], dim=1)
    return [
        torch.cat([vectors[:, :, None], rows.reshape(len(rows), -1, span.length, rows.shape[-1])], dim=2)
        for vectors, rows, span in zip(
            whole.split_with_sizes(counts, dim=1), words[: len(sizes)], block.spans, strict=True
        )
    ]
