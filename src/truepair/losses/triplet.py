"""Triplet losses over a similarity matrix, one value per pair (SCAN, VSE++; soft margins of NCR).

Everywhere: similarity is n x n, images are rows and texts columns, given pairs lie on the diagonal. A pair's
loss is the hinge cost of its image among all texts plus that of its text among all images.

Margins. A number: every pair's. A vector, n: entry i is pair i's own margin in both directions, as the
papers print it. Two dimensions, anything that broadcasts to n x n: entry [i, j] is used when image i meets
text j, in both directions. The published codes do the latter by accident of broadcasting: NCR's labels of
shape (n, 1) make the direction text to image use the *negative image's* margin, the one-dimensional labels of
BiCro and MSCN (1, n here) make image to text use the *negative text's*.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from truepair.losses.precision import full_precision

Negatives = Literal["hardest", "mean", "sum"]
MarginForm = Literal["hard", "linear", "exponential", "sine"]


class HardestNegatives(NamedTuple):
    """For every image the column of its hardest text, for every text the row of its hardest image, both n.

    An item without any negative points at its own pair.
    """

    columns: Tensor
    rows: Tensor


def triplet(
    similarity: Tensor,
    margin: float | Tensor = 0.2,
    negatives: Negatives = "hardest",
    same: Tensor | None = None,
) -> Tensor:
    """Hinge cost of every pair against its negatives, n.

    negatives: the hardest one (VSE++), the sum over all, or the mean, which divides by n and so counts the
    given pair as a zero, as NCR's warm-up and its per-pair loss for the mixture do.
    same: n x n, True where an entry is no negative besides the diagonal (another text of the same image).
    """
    similarity = full_precision(similarity)
    row_margin, column_margin = _margins(margin)
    matched = similarity.diagonal()
    positive = _positives(similarity, same)
    # The order of these steps (hinge, then zero, then maximum) decides where gradients go when costs are tied
    # or exactly at the hinge; it is that of the published codes.
    text_cost = (row_margin + similarity - matched[:, None]).clamp(min=0).masked_fill(positive, 0)
    image_cost = (column_margin + similarity - matched[None, :]).clamp(min=0).masked_fill(positive, 0)
    if negatives == "hardest":
        return text_cost.max(dim=1).values + image_cost.max(dim=0).values
    if negatives == "mean":
        return text_cost.mean(dim=1) + image_cost.mean(dim=0)
    if negatives == "sum":
        return text_cost.sum(dim=1) + image_cost.sum(dim=0)
    raise ValueError(f"negatives must be 'hardest', 'mean' or 'sum', not {negatives!r}.")


def hardest_negatives(
    similarity: Tensor, margin: float | Tensor = 0.0, same: Tensor | None = None
) -> HardestNegatives:
    """Where the hardest negatives are, to score only those pairs with a graph; the first of tied ones.

    margin matters only when it has two dimensions: a number, or one margin per pair, shifts all negatives of
    an item alike.
    """
    positive = _positives(similarity, same)
    own = torch.arange(len(similarity), device=similarity.device)
    row_margin, column_margin = _margins(margin)
    texts = (similarity + row_margin).masked_fill(positive, -math.inf)
    images = (similarity + column_margin).masked_fill(positive, -math.inf)
    return HardestNegatives(
        torch.where(positive.all(dim=1), own, texts.argmax(dim=1)),
        torch.where(positive.all(dim=0), own, images.argmax(dim=0)),
    )


def triplet_from_scores(
    matched: Tensor,
    hardest_text: Tensor,
    hardest_image: Tensor,
    margin: float | Tensor = 0.2,
    picked: HardestNegatives | None = None,
) -> Tensor:
    """The hardest-negative triplet loss from 3n scores instead of n x n, one value per pair.

    matched, hardest_text, hardest_image: n, scores of the given pairs, of every image with its hardest text
    and of every text with its hardest image. picked: where those negatives are; needed when the margin has
    two dimensions, and to give an item without a negative no cost.
    """
    matched = full_precision(matched)
    row_margin, column_margin = _margins_at(margin, picked)
    text_cost = (row_margin + hardest_text - matched).clamp(min=0)
    image_cost = (column_margin + hardest_image - matched).clamp(min=0)
    if picked is not None:
        own = torch.arange(len(matched), device=matched.device)
        text_cost = text_cost.masked_fill(picked.columns == own, 0)
        image_cost = image_cost.masked_fill(picked.rows == own, 0)
    return text_cost + image_cost


def soft_margin(
    label: Tensor, margin: float = 0.2, form: MarginForm = "exponential", base: float = 10.0
) -> Tensor:
    """The margin of pairs that are believed only in part (NCR and the variants of its code), shaped as label.

    label: the belief, 0 gives no margin and 1 the full one. form: "exponential" (base^y - 1) / (base - 1),
    "linear" y, "sine" (1 - cos(pi y)) / 2, "hard" the full margin whatever the label; all times margin.
    """
    if form == "hard":
        return torch.full_like(label, margin)
    if form == "linear":
        return margin * label
    if form == "exponential":
        return margin * (base**label - 1) / (base - 1)
    if form == "sine":
        return margin * (torch.sin(math.pi * label - math.pi / 2) + 1) / 2
    raise ValueError(f"form must be 'hard', 'linear', 'exponential' or 'sine', not {form!r}.")


def _positives(similarity: Tensor, same: Tensor | None) -> Tensor:
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(
            f"The similarity matrix must be square, pairs on its diagonal; got {tuple(similarity.shape)}."
        )
    own = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    return own if same is None else own | same


def _margins(margin: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
    """The margin as it broadcasts against the matrix: image to text, text to image."""
    if isinstance(margin, Tensor) and margin.ndim == 1:
        return margin[:, None], margin[None, :]
    return margin, margin


def _margins_at(
    margin: float | Tensor, picked: HardestNegatives | None
) -> tuple[float | Tensor, float | Tensor]:
    """The margin of every picked negative: image to text, text to image."""
    if not isinstance(margin, Tensor) or margin.ndim < 2:
        return margin, margin
    if picked is None:
        raise ValueError("A margin with two dimensions needs picked, the places of the negatives.")
    n = len(picked.columns)
    own = torch.arange(n, device=picked.columns.device)
    full = margin.expand(n, n)
    return full[own, picked.columns], full[picked.rows, own]
