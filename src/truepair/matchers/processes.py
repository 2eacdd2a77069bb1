"""Several processes that share a batch: sums and gathered rows, with gradient to all of them, on any back end.

torch's own versions are deprecated, and their successors need a newer torch than this package does.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


def count() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this one is."""
    return dist.get_rank() if count() > 1 else 0


def of_every(own: Tensor) -> list[Tensor]:
    """What every process has, in their order, without gradient; all of one shape."""
    if count() == 1:
        return [own]
    parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(count())]
    dist.all_gather(parts, own.detach().contiguous())
    return parts


def sum_of_all(own: Tensor) -> Tensor:
    """The sum of what every process has."""
    if count() == 1:
        return own
    total: Tensor = _Sum.apply(own)  # type: ignore[no-untyped-call]
    return total


def stacked(own: Tensor) -> Tensor:
    """What every process has, one after the other: processes x the shape of own, the same shape everywhere."""
    if count() == 1:
        return own[None]
    parts: Tensor = _Stack.apply(own)  # type: ignore[no-untyped-call]
    return parts


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return _total(own)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        # Every process has used the sum: what its own part is asked for comes from all of them.
        return _total(gradient)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return torch.stack(of_every(own))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _total(gradient)[rank()]


def _total(own: Tensor) -> Tensor:
    total = own.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total
