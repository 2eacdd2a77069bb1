"""Divisions: from one sweep of a network to the probability that each pair is clean, and what follows from it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from truepair.beliefs.divide import split_by_posterior
from truepair.beliefs.ledger import Ledger, Partition
from truepair.beliefs.mixtures import fit_beta, fit_gaussian, normalise
from truepair.beliefs.null import mismatch_probability
from truepair.methods.base import Division, Stream, Sweep


def gaussian_division(sweep: Sweep) -> NDArray[np.float64]:
    """Posterior of the lower of two Gaussians fitted to the normalised losses (DivideMix, NCR, ReCon)."""
    losses = normalise(sweep.values["loss"].numpy())
    return fit_gaussian(losses).posterior(losses)


def beta_division(sweep: Sweep) -> NDArray[np.float64]:
    """Posterior of the lower of two Beta distributions fitted to the normalised losses (BiCro, GSL)."""
    losses = normalise(sweep.values["loss"].numpy())
    return fit_beta(losses).posterior(losses)


def repairing_division(sweep: Sweep) -> NDArray[np.float64]:
    """One minus the mismatch probability under the known distribution of random re-pairings.

    Unlike a mixture it does not need to split what is not divided: without noise nearly every pair is clean.
    """
    nulls = sweep.null_scores[sweep.null_scores.isfinite()]
    return 1 - mismatch_probability(sweep.scores.double().numpy(), nulls.double().numpy())


def divide_each(sweeps: Sequence[Sweep], ledger: Ledger, division: Division, threshold: float) -> None:
    """Divide the pairs once per network and write losses, clean probabilities and partitions."""
    for network, sweep in enumerate(sweeps):
        clean = torch.from_numpy(division(sweep)).float()
        ledger.loss[network] = sweep.values["loss"]
        ledger.clean[network] = clean
        ledger.partition[network] = torch.where(
            split_by_posterior(clean, threshold), int(Partition.CLEAN), int(Partition.NOISY)
        )


def co_teaching_streams(ledger: Ledger, network: int) -> tuple[Stream, Stream]:
    """Clean and noisy pairs as the other network divided them."""
    clean = ledger.partition[1 - network] == int(Partition.CLEAN)
    return Stream("clean", clean.nonzero()[:, 0]), Stream("noisy", (~clean).nonzero()[:, 0])
