"""Soft correspondence labels: how much of a match a pair is taken to be, in [0, 1].

NCR's adaptive prediction and co-refinement (Huang et al., NeurIPS 2021), CRCL's self-refining correction (Qin
et al., NeurIPS 2023) and the momentum that ReCon shares with it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from truepair.losses.precision import full_precision


def adaptive_prediction(similarity: Tensor, margin: float = 0.2, *, clamped: bool = True) -> Tensor:
    """How well each pair of a batch matches, compared with the best of the batch, n (NCR).

    similarity: n x n, given pairs on the diagonal. Each pair scores margin minus its mean hinge cost against
    all negatives, both ways averaged and the pair itself counted as a cost of 0; scores are divided by the
    mean of the best n // 10 + 1. clamped: cut at 1, as NCR does in the end.

    If no pair scores anything, the published code divides 0 by 0; here every prediction is 0 then, since the
    batch holds no evidence that any of its pairs matches.
    """
    similarity = full_precision(similarity.detach())
    matched = similarity.diagonal()
    own = torch.eye(len(matched), dtype=torch.bool, device=similarity.device)
    by_image = (margin + similarity - matched[:, None]).clamp_min(0).masked_fill(own, 0.0).mean(1)
    by_text = (margin + similarity - matched[None, :]).clamp_min(0).masked_fill(own, 0.0).mean(0)
    score = (margin - (by_image + by_text) / 2).clamp(0, margin)
    best = score.topk(len(score) // 10 + 1).values.mean()
    prediction = torch.where(best > 0, score / best, 0.0)
    return prediction.clamp(max=1) if clamped else prediction


def ncr_targets(
    clean_probability: Tensor, prediction: Tensor, *, published_broadcast: bool = False
) -> Tensor:
    """Labels of clean pairs, refined by the network's own prediction, n (NCR).

    clean_probability: n, w. prediction: n, P. y = w + (1 - w) P.
    published_broadcast: the n x n matrix that the published loop forms by broadcasting a column with a row:
    entry [i, j] = w_i + (1 - w_i) P_j, each of which then sets the margin of one negative.
    """
    weight = clean_probability[:, None] if published_broadcast else clean_probability
    return weight + (1 - weight) * prediction


def ncr_noisy_targets(prediction: Tensor, peer_prediction: Tensor) -> Tensor:
    """Labels of noisy pairs, n: the mean of what the two networks predict (NCR)."""
    return (prediction + peer_prediction) / 2


def momentum_label(previous: Tensor, prediction: Tensor, momentum: float) -> Tensor:
    """A label that follows the predictions slowly, n (CRCL Eq. 10, ReCon Eq. 10)."""
    return momentum * previous + (1 - momentum) * prediction


@dataclass(frozen=True)
class SelfRefinement:
    """How CRCL corrects the labels within a piece of training."""

    momentum: float = 0.8
    """beta, Eq. 10."""
    frozen_epochs: int = 2
    """e_f, Eq. 11: epochs at the start of each piece in which the labels rest. See `frozen_epochs`."""
    sure_noise_below: float = 0.1
    """epsilon, Eq. 12."""
    remember_zeros: bool = True
    """Whether a label that Eq. 12 sets to 0 is remembered as 0 (published code) or as it was (paper)."""


def frozen_epochs(steps: int, steps_per_epoch: int) -> int:
    """The least number of epochs with at least so many steps.

    A network needs steps, not epochs, before its predictions are worth storing: Flickr30K's two frozen epochs
    are 2,266 steps, two of a small data set's epochs are far too few.
    """
    return -(-steps // steps_per_epoch)


def self_refined_label(
    previous: Tensor, prediction: Tensor, epoch: int, piece: int, settings: SelfRefinement
) -> tuple[Tensor, Tensor]:
    """The label that a step's loss uses and the label to remember, n each (CRCL, Eq. 11-12).

    previous: n, remembered labels, 1 at the very beginning. prediction: n, the mean of both matching
    probabilities in this very step. epoch: of the piece, from 0. piece: from 0; the labels live on when the
    network is begun anew.

    As in the published code, the first piece's last frozen epoch remembers the bare prediction while the loss
    still uses the old label, and each later step moves the label by the prediction of that step (Eq. 11
    prints the epoch before).
    """
    if epoch < settings.frozen_epochs:
        handing_over = piece == 0 and epoch == settings.frozen_epochs - 1
        return _without_sure_noise(previous, settings), prediction if handing_over else previous
    label = momentum_label(previous, prediction, settings.momentum)
    used = _without_sure_noise(label, settings)
    return used, used if settings.remember_zeros else label


def _without_sure_noise(label: Tensor, settings: SelfRefinement) -> Tensor:
    return label.masked_fill(label < settings.sure_noise_below, 0.0)
