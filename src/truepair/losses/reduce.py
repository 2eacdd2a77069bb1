"""From one value per pair to the scalar that is minimised: the only place where this happens."""

from typing import Literal

from torch import Tensor

Reduction = Literal["mean", "sum"]


def reduce(values: Tensor, how: Reduction = "mean", weights: Tensor | None = None) -> Tensor:
    """The mean over pairs, or their sum (SCAN, VSE++ and NCR sum; CRCL, ReCon and GSL average).

    values: n. weights: n, multiplied in before; the mean still divides by n, so that a pair of weight zero
    counts as a pair without loss. No pairs at all give zero, not NaN: a division may leave a side empty.
    """
    if weights is not None:
        values = values * weights
    return values.sum() if how == "sum" else values.sum() / max(len(values), 1)
