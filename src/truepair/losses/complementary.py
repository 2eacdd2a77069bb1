"""Complementary learning: push away what does not match instead of trusting what is said to match.

CRCL (Qin et al., NeurIPS 2023): active loss and robust complementary loss over matching probabilities.
SREM (Dang et al., AAAI 2024): biased complementary learning (CMBCL) over similarities.
Every function gives one value per pair; the mean over the pairs is the loss that the papers print.
"""

from typing import Literal

import torch
from torch import Tensor

from truepair.losses.precision import full_precision

Reading = Literal["product", "rows", "weighted", "uniform"]

NEARLY_ONE = 1 - 1e-3
"""Where -log(1 - s) goes over into its tangent: a saturated similarity keeps a finite gradient, and rectified ones,
which Eq. 12 does not keep below 1, a finite loss."""


def active_loss(i2t: Tensor, t2i: Tensor, label: Tensor) -> Tensor:
    """Label-weighted cross entropy of the given pairs, n (CRCL, L_d: before Eq. 8).

    i2t, t2i: n x n matching probabilities of Eq. 3 (rows of i2t sum to one, and so do columns of t2i), the
    given pairs on the diagonal. label: n, in [0, 1]. A probability that has underflowed counts as the
    smallest float.
    """
    return -label * (_log(i2t.diagonal()) + _log(t2i.diagonal()))


def robust_complementary_loss(i2t: Tensor, t2i: Tensor, exponent: Tensor | float) -> Tensor:
    """Tangents of the probabilities of all mismatches, normalised by a power, n (CRCL, L_r: Eq. 6).

    i2t, t2i: n x n matching probabilities. exponent: q in [0, 1], one number or n; 1 is tolerant of noise, 0
    is the plain complementary loss, which learns fastest.
    """
    return _tangent_share(i2t, exponent) + _tangent_share(t2i.T, exponent)


def active_complementary(i2t: Tensor, t2i: Tensor, label: Tensor, weight: float = 5.0) -> Tensor:
    """Active plus robust complementary loss, n (CRCL, Eq. 8 with q = 1 - label; its mean is Eq. 9).

    i2t, t2i: n x n matching probabilities, matched pairs on the diagonal. label: n, in [0, 1]. weight:
    lambda.
    """
    return active_loss(i2t, t2i, label) + weight * robust_complementary_loss(i2t, t2i, 1 - label)


def biased_complementary(
    similarity: Tensor,
    clean: Tensor | None = None,
    *,
    steepness: float = 2.0,
    base: float = 0.5,
    reading: Reading = "product",
) -> Tensor:
    """Biased complementary loss of every row, n (SREM's CMBCL, Eq. 10-13; transpose for the other direction).

    similarity: n x n in [0, 1], scores or matching probabilities (these have something to gain from matched
    pairs: alone, without a loss that pulls them up, scores all sink to 0); a negative cosine counts as 0, it
    is a mismatch already. clean: n, True where a row is trusted, so that its hardest negatives are left to
    the hinge loss (Eq. 11); None: nowhere, as in warm-up. steepness, base: beta and b of Eq. 10. reading:
    what Eq. 12 means,

    - "product": softmax(P)^T S, as printed: row i of S' mixes the rows of S whose complementary label is i;
    - "rows": S softmax(P), the transition applied to each row, as in the cited biased complementary labels;
    - "weighted": every -log(1 - S_ij) weighted by the selection probability of j, over the other columns
      only;
    - "uniform": no selection probability at all (the paper's ablation L_c*).
    """
    scores = full_precision(similarity).clamp(0, 1)
    own = _diagonal(scores)
    taken = own if clean is None else own | (_hardest_negatives(scores) & clean[:, None])
    if reading == "uniform":
        return _mean_over(_minus_log_rest(scores), ~taken)
    chance = _selection_probability(scores, own, steepness, base)
    if reading == "weighted":
        # A row may have no complementary label left (two pairs, one of them its hardest negative): no loss
        # then.
        share = chance.masked_fill(taken, -torch.inf).softmax(1).nan_to_num(0.0)
        return (share * _minus_log_rest(scores)).masked_fill(taken, 0.0).sum(1)
    transition = chance.masked_fill(taken & ~own, -torch.inf).softmax(1)
    rectified = transition.T @ scores if reading == "product" else scores @ transition
    return _mean_over(_minus_log_rest(rectified), ~own)


def _log(probability: Tensor) -> Tensor:
    values = full_precision(probability)
    return values.clamp_min(torch.finfo(values.dtype).tiny).log()


def _diagonal(matrix: Tensor) -> Tensor:
    return torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)


def _tangent_share(probability: Tensor, exponent: Tensor | float) -> Tensor:
    tangents = full_precision(probability).tan()
    mismatched = tangents.masked_fill(_diagonal(tangents), 0.0).sum(1)
    return mismatched / (mismatched + tangents.diagonal()) ** exponent


def _hardest_negatives(scores: Tensor) -> Tensor:
    """True at the largest off-diagonal entries of each row; equal ones are all hardest."""
    others = scores.detach().masked_fill(_diagonal(scores), -torch.inf)
    return (others == others.amax(1, keepdim=True)) & ~_diagonal(scores)


def _selection_probability(scores: Tensor, own: Tensor, steepness: float, base: float) -> Tensor:
    """Eq. 10, n x n. The sum runs over the other columns, the numerator over all, as printed."""
    with torch.no_grad():
        exponent = steepness * (scores - base)
        others = exponent.masked_fill(own, -torch.inf)
        # log(1 + sum exp) as a logsumexp with a zero in it
        return (
            exponent - torch.cat([others, others.new_zeros(len(others), 1)], 1).logsumexp(1, keepdim=True)
        ).exp()


def _minus_log_rest(share: Tensor) -> Tensor:
    """-log(1 - share), continued by its tangent from NEARLY_ONE on."""
    inside = share.clamp(max=NEARLY_ONE)
    return -torch.log1p(-inside) + (share - inside) / (1 - NEARLY_ONE)


def _mean_over(values: Tensor, members: Tensor) -> Tensor:
    """Row means over the members, n; 0 for a row without any."""
    return values.masked_fill(~members, 0.0).sum(1) / members.sum(1).clamp_min(1)
