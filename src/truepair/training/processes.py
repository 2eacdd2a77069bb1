"""Several processes: each encodes its share of a batch; codes and similarities are gathered with gradient.

Every process then computes the same loss over the whole batch, so negatives come from all of it and the ledger is
the same everywhere. Gathering sends the gradients of all processes back to the one that made a code, which counts
the loss once per process; averaging the parameters' gradients over the processes takes that factor out again.
"""

import os
from collections.abc import Iterable
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from truepair.matchers.base import ImageCodes, TextCodes
from truepair.matchers.processes import count, rank, stacked


def speaks() -> bool:
    """Whether this process is the one that prints. Known from the launcher, before any group of processes exists."""
    return os.environ.get("RANK", "0") == "0"


def share(size: int) -> slice:
    """The rows of a batch of this size that belong to this process; all of a batch too small to be shared."""
    if size < count():
        return slice(0, size)
    bounds = _bounds(size)
    return slice(bounds[rank()], bounds[rank() + 1])


def _bounds(size: int) -> list[int]:
    return [size * part // count() for part in range(count() + 1)]


def gather_rows(rows: Tensor, size: int) -> Tensor:
    """Put the shares of all processes together again, with gradient. rows: this share x ...; size: all rows."""
    if size < count() or count() == 1:
        return rows
    bounds = _bounds(size)
    largest = max(after - before for before, after in pairwise(bounds))
    padded = torch.cat([rows, rows.new_zeros(largest - len(rows), *rows.shape[1:])])
    parts = stacked(padded)
    return torch.cat([part[: bounds[i + 1] - bounds[i]] for i, part in enumerate(parts)])


def gather_images(codes: ImageCodes, size: int) -> ImageCodes:
    """The codes of all images of the batch."""
    if count() == 1:
        return codes
    # A share without padding has no mask while another one has: all must take part in gathering it.
    real = (
        torch.ones(codes.regions.shape[:2], device=codes.regions.device) if codes.mask is None else codes.mask
    )
    mask = gather_rows(real.byte(), size).bool()
    return ImageCodes(
        gather_rows(codes.regions, size), gather_rows(codes.vectors, size), None if mask.all() else mask
    )


def gather_texts(codes: TextCodes, lengths: Tensor) -> TextCodes:
    """The codes of all texts of the batch. lengths: those of all texts, known everywhere."""
    if count() == 1:
        return codes
    size, longest = len(lengths), int(lengths.max())
    words = codes.words
    words = torch.cat([words, words.new_zeros(len(words), longest - words.shape[1], words.shape[2])], dim=1)
    return TextCodes(gather_rows(words, size), gather_rows(codes.vectors, size), lengths)


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace every gradient by its mean over the processes."""
    if count() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= count()
    offset = 0
    for gradient in gradients:
        gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()
