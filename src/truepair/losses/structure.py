"""Semantic-constrained triplet loss (GSL, CVPR 2026, Eq. 13, 15, 16): structure in and between modalities.

Each function compares n pairs with m others: with one another (m = n: the training loss) or with m chosen
anchors (the division loss). Entry i belongs to pair i. With scale "mean" an entry is a mean over the m
others, so that it stands beside a per-pair triplet loss at the same weight for every batch size; the mean of
the entries is the printed double sum over n * m. With scale "sum" the sum of the entries is the printed
double sum itself.
"""

from typing import Literal

from torch import Tensor

from truepair.losses.precision import full_precision

Scale = Literal["mean", "sum"]


def intra_structure(image_similarity: Tensor, text_similarity: Tensor, scale: Scale = "mean") -> Tensor:
    """How differently a pair's image and text stand to the other images and texts, n, at least 0 (Eq. 13).

    image_similarity: n x m, S(I_i, I_j). text_similarity: n x m, S(T_i, T_j).
    """
    return _over_others(full_precision(image_similarity) - full_precision(text_similarity), scale)


def inter_structure(image_to_text: Tensor, text_to_image: Tensor, scale: Scale = "mean") -> Tensor:
    """*Minus* the asymmetry of the similarities between the modalities, n, at most 0 (Eq. 15).

    image_to_text: n x m, S(I_i, T_j). text_to_image: n x m, S(I_j, T_i): of a square batch matrix the
    transpose. It is bounded below only because similarities are: with scale "mean" by -1 for scores in [0,
    1], by -4 for cosines.
    """
    return -_over_others(full_precision(image_to_text) - full_precision(text_to_image), scale)


def semantic_constrained(
    triplet: Tensor, intra: Tensor, inter: Tensor, intra_weight: float = 1.0, inter_weight: float = 0.1
) -> Tensor:
    """L_SCT of every pair, n (Eq. 16). triplet, intra, inter: n. intra_weight: zeta. inter_weight: eta."""
    return triplet + intra_weight * intra + inter_weight * inter


def _over_others(difference: Tensor, scale: Scale) -> Tensor:
    squares = difference**2
    return squares.mean(1) if scale == "mean" else squares.sum(1)
