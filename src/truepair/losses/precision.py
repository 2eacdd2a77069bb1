"""In which precision a loss is computed."""

import torch
from torch import Tensor


def full_precision(values: Tensor) -> Tensor:
    """The values in float32, or as they are where they are float64 already.

    Logarithms, powers and differences of nearly equal numbers lose too much in half precision, and a batch of
    similarities is small: under mixed precision the losses are computed in float32 whatever the matcher used.
    """
    return values if values.dtype == torch.float64 else values.float()
