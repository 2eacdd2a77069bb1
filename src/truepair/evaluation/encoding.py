"""The codes of a whole split, batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.pairs.batch import BatchReader


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Networks in evaluation mode, without gradients; afterwards each is in the mode it was in."""
    modes = [network.training for network in networks]
    for network in networks:
        network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for network, mode in zip(networks, modes, strict=True):
            network.train(mode)


def encode_split(
    matcher: Matcher, reader: BatchReader, device: torch.device | str = "cpu", batch_size: int = 256
) -> tuple[ImageCodes, TextCodes]:
    """Codes of all images and all texts of a split, in their order, without gradient. The matcher must be in
    evaluation mode."""
    n_texts = len(reader.pairs)
    images = encode_images(matcher, reader, device, batch_size=batch_size)
    assert images is not None  # no limit was set
    with torch.no_grad():
        # Texts of similar length together: padding costs time.
        order = np.argsort(reader.lengths, kind="stable").astype(np.int64)
        texts = []
        for start in range(0, n_texts, batch_size):
            tokens, lengths = reader.texts(order[start : start + batch_size])
            texts.append(matcher.encode_texts(tokens.to(device), lengths.to(device)))
    return images, _joined_texts(texts, torch.from_numpy(np.argsort(order, kind="stable")))


def encode_images(
    matcher: Matcher,
    reader: BatchReader,
    device: torch.device | str = "cpu",
    most_numbers: int | None = None,
    batch_size: int = 256,
) -> ImageCodes | None:
    """Codes of all images of a split, in their order, without gradient; None if they were more numbers than allowed.
    The matcher must be in evaluation mode."""
    n_images = reader.pairs.n_images
    parts: list[ImageCodes] = []
    with torch.no_grad():
        for start in range(0, n_images, batch_size):
            regions, mask = reader.images(np.arange(start, min(start + batch_size, n_images)))
            codes = matcher.encode_images(regions.to(device), None if mask is None else mask.to(device))
            each = (codes.regions.numel() + codes.vectors.numel()) // len(codes)
            if most_numbers is not None and each * n_images > most_numbers:
                return None
            parts.append(codes)
    return _joined_images(parts)


def _joined_images(parts: list[ImageCodes]) -> ImageCodes:
    masks = [part.mask for part in parts]
    if all(mask is None for mask in masks):
        mask = None
    else:
        # A batch whose images all have every region comes without a mask.
        whole = [
            p.regions.new_ones(p.regions.shape[:2], dtype=torch.bool) if p.mask is None else p.mask
            for p in parts
        ]
        mask = torch.cat(whole)
    return ImageCodes(torch.cat([p.regions for p in parts]), torch.cat([p.vectors for p in parts]), mask)


def _joined_texts(parts: list[TextCodes], order: Tensor) -> TextCodes:
    longest = max(part.words.shape[1] for part in parts)
    words = [torch.nn.functional.pad(part.words, (0, 0, 0, longest - part.words.shape[1])) for part in parts]
    order = order.to(words[0].device)
    return TextCodes(
        torch.cat(words)[order],
        torch.cat([part.vectors for part in parts])[order],
        torch.cat([part.lengths for part in parts])[order],
    )
