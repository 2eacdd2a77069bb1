"""Dividing the pairs by what is believed about them: into clean and noisy, or into three."""

import torch
from torch import Tensor

from truepair.beliefs.ledger import Partition
from truepair.errors import TruepairError


def split_by_posterior(posterior: Tensor, threshold: float = 0.5) -> Tensor:
    """Which pairs are clean, n bools: those whose clean posterior is strictly above the threshold.

    posterior: n, in [0, 1], in the order of the pairs' ids. Training needs both sides. As in NCR, if every
    pair comes out clean, the hundredth with the smallest posterior is noisy all the same; likewise, if none
    does, the hundredth with the largest is clean. Ties are settled by the order of the ids.
    """
    if not bool(posterior.isfinite().all()):
        bad = int((~posterior.isfinite()).nonzero()[0])
        raise TruepairError(
            f"The clean posterior of pair {bad} is not a finite number. "
            "Check the losses that the division was fitted to, and the learning rate if they have diverged."
        )
    clean = posterior > threshold
    hundredth = len(posterior) // 100
    if bool(clean.all()) and len(clean):
        clean = posterior > posterior.sort().values[hundredth]
        if not bool(clean.any()):  # all posteriors equal, or nearly so: count instead of comparing
            clean = torch.ones_like(clean)
            clean[posterior.argsort(stable=True)[: hundredth + 1]] = False
    elif not bool(clean.any()):
        clean[posterior.argsort(descending=True, stable=True)[: hundredth + 1]] = True
    return clean


def split_three_ways(clean: Tensor, discrepancy: Tensor, threshold: float = 0.5) -> Tensor:
    """Clean, locally associated or noisy, n `Partition` values (ReCon, Eq. 8).

    clean: n bools, the rough division. discrepancy: n, y_IM; a roughly clean pair at the threshold or above
    it is only locally associated.
    """
    local = clean & (discrepancy >= threshold)
    partition = torch.full(clean.shape, int(Partition.NOISY), dtype=torch.uint8, device=clean.device)
    return partition.masked_fill(clean, Partition.CLEAN).masked_fill(local, Partition.LOCAL)
