"""Divisions: from one sweep of a network to the probability that each pair is clean, and what follows from it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from truepair.beliefs.divide import split_by_posterior
from truepair.beliefs.ledger import Ledger, Partition
from truepair.beliefs.mixtures import Start, fit_beta, fit_gaussian, normalise
from truepair.beliefs.null import mismatch_probability
from truepair.beliefs.share import mismatched_share
from truepair.errors import TruepairError
from truepair.methods.base import Division, Stream, Sweep


def gaussian_division(sweep: Sweep) -> NDArray[np.float64]:
    """Posterior of the lower of two Gaussians fitted to the normalised losses (DivideMix, NCR, ReCon)."""
    losses = normalise(sweep.values["loss"].numpy())
    return fit_gaussian(losses).posterior(losses)


def beta_division(sweep: Sweep, start: Start = "fixed") -> NDArray[np.float64]:
    """Posterior of the lower of two Beta distributions fitted to the normalised losses (BiCro, GSL)."""
    losses = normalise(sweep.values["loss"].numpy())
    return fit_beta(losses, start=start).posterior(losses)


def repairing_division(sweep: Sweep) -> NDArray[np.float64]:
    """One minus the mismatch probability under the known distribution of re-paired pairs: that of the decoys.

    Unlike a mixture it does not need to split what is not divided: without noise nearly every pair is clean. Decoys
    are judged like all other pairs, so that they go on being trained on as those are.
    """
    scores, decoys = sweep.scores.double().numpy(), sweep.decoys.numpy()
    if not decoys.any():
        raise TruepairError("The re-pairing division needs decoys among the pairs; these have none.")
    share = mismatched_share(scores[~decoys], scores[decoys])
    return 1 - mismatch_probability(scores, scores[decoys], share)


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
