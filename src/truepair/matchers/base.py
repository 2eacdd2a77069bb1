"""What every matcher offers: codes of images and texts, and similarities of all or of listed pairs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ImageCodes:
    """Encoded images. regions: n x k x d, zero where masked. vectors: n x d. mask: n x k, or None.

    The mask is True where a region is real; None says that all are.
    """

    regions: Tensor
    vectors: Tensor
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Tensor | slice) -> "ImageCodes":
        """The codes of these rows."""
        mask = None if self.mask is None else self.mask[rows]
        return ImageCodes(self.regions[rows], self.vectors[rows], mask)


@dataclass(frozen=True)
class TextCodes:
    """Encoded texts. words: m x t x d, zero past the length. vectors: m x d. lengths: m."""

    words: Tensor
    vectors: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Tensor | slice) -> "TextCodes":
        """The codes of these rows, cut to their longest text."""
        lengths = self.lengths[rows]
        longest = int(lengths.max()) if len(lengths) else 0
        return TextCodes(self.words[rows][:, :longest], self.vectors[rows], lengths)


class Matcher(nn.Module, ABC):
    """Turns images and texts into codes, and codes into similarities (images are rows, texts columns)."""

    pairs_are_costly: ClassVar[bool] = False
    """True where scoring a pair costs much and depends on nothing but its codes, even while training: a loss
    that looks at few pairs then builds a graph for those alone."""
    has_sigmoid: ClassVar[bool] = False
    """True where the score is a sigmoid of the logits."""
    has_parts: ClassVar[bool] = True
    """False where an item is one vector, without regions and words of its own."""

    @abstractmethod
    def encode_images(self, regions: Tensor, mask: Tensor | None = None) -> ImageCodes:
        """regions: n x k x features. mask: n x k, True where a region is real; None when all are."""

    @abstractmethod
    def encode_texts(self, tokens: Tensor, lengths: Tensor) -> TextCodes:
        """tokens: m x t word numbers, zero past the length. lengths: m."""

    @abstractmethod
    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The score of every image with every text before a final sigmoid (if there is one), n x m."""

    @abstractmethod
    def pair_logits(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The logits of the listed pairs only: entry p is that of image rows[p] and text columns[p]."""

    def similarity(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        """The published score of every image with every text, n x m."""
        return self.score(self.logits(images, texts))

    def pair_similarity(self, images: ImageCodes, texts: TextCodes, rows: Tensor, columns: Tensor) -> Tensor:
        """The published score of the listed pairs only, p."""
        return self.score(self.pair_logits(images, texts, rows, columns))

    def score(self, logits: Tensor) -> Tensor:
        """The published score of a logit: the identity unless the matcher ends in a sigmoid."""
        return logits

    def image_vectors(self, images: ImageCodes) -> Tensor:
        """One global vector per image, n x d, unit length."""
        return images.vectors

    def text_vectors(self, texts: TextCodes) -> Tensor:
        """One global vector per text, m x d, unit length."""
        return texts.vectors


def lengths_to_mask(lengths: Tensor, width: int) -> Tensor:
    """True at the positions before each length, m x width."""
    return torch.arange(width, device=lengths.device)[None] < lengths[:, None]
