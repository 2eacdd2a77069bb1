"""What batch statistics need when several processes share a batch."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn import functional as with_gradient


def count() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_of_all(own: Tensor) -> Tensor:
    """The sum of what every process has, with gradient to all of them."""
    if count() == 1:
        return own
    total: Tensor = with_gradient.all_reduce(own)  # type: ignore[no-untyped-call]
    return total


def of_every(own: Tensor) -> list[Tensor]:
    """What every process has, in their order, without gradient; all of one shape."""
    if count() == 1:
        return [own]
    parts = [torch.empty_like(own) for _ in range(count())]
    dist.all_gather(parts, own.detach().contiguous())
    return parts
