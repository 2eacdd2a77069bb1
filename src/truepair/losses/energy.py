"""Energy-guided filtration and swapped gradient weighting (SREM: Dang et al., AAAI 2024).

F are the n x n logits before the final sigmoid, S the scores after it; images are rows, the given pairs lie
on the diagonal. Whatever has a side per modality comes as (images, texts). The paper's expectations run over
the clean or the noisy pairs only: the values here are scaled so that their *mean over the whole batch* is the
paper's expectation.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from truepair.losses.precision import full_precision

Average = Literal["clean", "batch"]


def energies(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Energy uncertainty of every image and of every text, n each: low when one answer stands out (Eq. 1)."""
    logits = full_precision(logits)
    return -logits.logsumexp(1), -logits.logsumexp(0)


def mismatch_level(logits: Tensor) -> Tensor:
    """How much all mismatched answers to an item together weigh, a scalar without gradient; 0 if there are none.

    The mean over rows and columns of their logsumexp. Logits minus this level give energy 0 to an item that
    nothing answers better than its mismatches, and to others minus the logarithm of 1 plus their odds.
    """
    if len(logits) < 2:
        return logits.new_zeros(())
    logits = full_precision(logits.detach())
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    others = logits.masked_fill(own, -torch.inf)
    return (others.logsumexp(1).mean() + others.logsumexp(0).mean()) / 2


def clean_by_energy(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Which pairs are trusted, by their image and by their text, n bools each (Eq. 2).

    Trusted: the energy is below the threshold and no other answer scores higher. An equal score is no
    evidence against a pair (the same caption may stand twice in a batch) and does not depend on the order of
    the batch.
    """
    logits = full_precision(logits.detach())
    image_energy, text_energy = energies(logits)
    matched = logits.diagonal()
    return (
        (image_energy < threshold) & (matched >= logits.amax(1)),
        (text_energy < threshold) & (matched >= logits.amax(0)),
    )


def energy_bound(
    energy: Tensor, clean: Tensor, clean_below: float = -4.0, noisy_above: float = 0.0
) -> Tensor:
    """Squared hinges that part the energies of clean and noisy pairs, n; the mean is Eq. 3.

    energy: n, of one modality. clean: n bools. clean_below, noisy_above: the margins m_clean and m_noisy.
    """
    energy = full_precision(energy)
    too_high = (energy - clean_below).clamp_min(0) ** 2
    too_low = (noisy_above - energy).clamp_min(0) ** 2
    return _as_expectation(too_high, clean) + _as_expectation(too_low, ~clean)


def entropy_weights(logits: Tensor, similarity: Tensor, margin: float = 0.2) -> tuple[Tensor, Tensor]:
    """How much the model may rely on each image and each text, n each, in [0, 1], without gradient (Eq. 4-5).

    One minus the normalised entropy of the answer's distribution, or 1 where the hardest negative of that
    side is already further away than the margin.
    """
    logits, similarity = full_precision(logits.detach()), full_precision(similarity.detach())
    return _entropy_weight(logits, similarity, margin), _entropy_weight(logits.T, similarity.T, margin)


def swapped_hinge(
    similarity: Tensor,
    weights: tuple[Tensor, Tensor],
    clean: tuple[Tensor, Tensor],
    margin: float = 0.2,
    average: Average = "clean",
) -> Tensor:
    """Hardest-negative hinge with the *other* modality's weight, clean pairs only, n (half of both Eq. 6).

    similarity: n x n. weights: of images and of texts (`entropy_weights`). clean: by image and by text. average:
    "clean", as printed, or "batch", where every clean pair counts as one of the batch, so that a step with one of
    them is not that pair's alone.
    """
    similarity = full_precision(similarity)
    matched = similarity.diagonal()
    image_weight, text_weight = weights
    image_to_text = (margin - text_weight * matched + _hardest(similarity)).clamp_min(0)
    text_to_image = (margin - image_weight * matched + _hardest(similarity.T)).clamp_min(0)
    if average == "batch":
        return (image_to_text * clean[0] + text_to_image * clean[1]) / 2
    return (_as_expectation(image_to_text, clean[0]) + _as_expectation(text_to_image, clean[1])) / 2


def _entropy_weight(logits: Tensor, similarity: Tensor, margin: float) -> Tensor:
    if len(logits) < 2:
        return logits.new_ones(len(logits))
    log_share = logits.log_softmax(1)
    # A logit that is far behind has share 0 and a finite logarithm: 0 times it is 0, as the limit of x log x.
    entropy = -(log_share.exp() * log_share).sum(1) / math.log(len(logits))
    unsettled = margin - similarity.diagonal() + _hardest(similarity) > 0
    return 1 - entropy.clamp(0, 1) * unsettled


def _hardest(similarity: Tensor) -> Tensor:
    """The largest off-diagonal entry of every row, n; minus infinity if there is none."""
    own = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    return similarity.masked_fill(own, -torch.inf).amax(1)


def _as_expectation(values: Tensor, members: Tensor) -> Tensor:
    """Zero outside the members; scaled, so that the mean over all is that over the members (0 if none)."""
    return values.masked_fill(~members, 0.0) * (len(values) / members.sum().clamp_min(1))
