"""Two small heads over embeddings people already have (CLIP, a sentence encoder), and their cosine."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from truepair.errors import TruepairError
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.encoders import checked_regions, mean_over
from truepair.matchers.kernels import Linear, l2norm


@dataclass(frozen=True)
class ProjectionConfig:
    """Sizes of the two heads."""

    image_width: int = 512
    text_width: int = 512
    embedding: int = 256
    hidden: int | None = None  # width of one hidden layer with ReLU; None means linear heads
    dropout: float = 0.0  # on the hidden layer, or on the input of linear heads


class Projection(Matcher):
    """The cosine of projected image and text embeddings.

    Codes hold one region per image and one word per text: the vector itself.
    """

    has_parts = False

    def __init__(self, config: ProjectionConfig) -> None:
        super().__init__()
        self.config = config
        self.image_head = _head(config.image_width, config)
        self.text_head = _head(config.text_width, config)

    def encode_images(self, regions: Tensor, mask: Tensor | None = None) -> ImageCodes:
        """regions: n x k x features (k may be 1); their mean over the real regions is projected."""
        regions, mask = checked_regions(regions, mask, self.config.image_width)
        vectors = self._project(self.image_head, mean_over(regions.to(self._dtype), mask))
        return ImageCodes(vectors[:, None], vectors)

    def encode_texts(self, tokens: Tensor, lengths: Tensor) -> TextCodes:
        """tokens: text embeddings, m x width (floats). lengths: ignored."""
        if tokens.dim() != 2 or tokens.shape[1] != self.config.text_width or not tokens.is_floating_point():
            raise TruepairError(
                f"Texts come as {tokens.dtype} of the shape {tuple(tokens.shape)}; "
                f"this matcher needs one vector of {self.config.text_width} floating point numbers per text."
            )
        vectors = self._project(self.text_head, tokens.to(self._dtype))
        return TextCodes(
            vectors[:, None], vectors, torch.ones(len(vectors), dtype=torch.int64, device=tokens.device)
        )

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The cosine, n x m."""
        return images.vectors @ texts.vectors.T

    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The cosine of the listed pairs."""
        return (images.vectors[rows] * texts.vectors[columns]).sum(dim=-1)

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _project(self, head: nn.Module, embeddings: Tensor) -> Tensor:
        # Encoders differ in the scale of their embeddings; at unit length one learning rate suits all.
        return l2norm(head(l2norm(embeddings)))


def _head(width: int, config: ProjectionConfig) -> nn.Sequential:
    dropout = nn.Dropout(config.dropout)
    if config.hidden is None:
        return nn.Sequential(dropout, Linear(width, config.embedding))
    first, last = Linear(width, config.hidden), Linear(config.hidden, config.embedding)
    return nn.Sequential(first, nn.ReLU(), dropout, last)
