"""Bidirectional InfoNCE with soft labels, one value per pair, and the probabilities it is made of.

Everywhere: similarity is n x n, images are rows and texts columns, given pairs lie on the diagonal.
"""

from torch import Tensor

from truepair.losses.precision import full_precision


def matching_probabilities(similarity: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """How probably image i and text j belong together, among all texts and among all images (CRCL, Eq. 3).

    Both are n x m with images as rows: rows of the first sum to one, columns of the second.
    """
    logits = _scaled(similarity, temperature)
    return logits.softmax(dim=1), logits.softmax(dim=0)


def info_nce(similarity: Tensor, temperature: float, labels: Tensor | None = None) -> Tensor:
    """Cross-entropy of both matching directions against the labels, added; one value per pair, n.

    labels, none: every pair is right, -log p_ii both ways.
    labels, n: the belief in every pair, y_i times the loss of pair i (ReCon, Eq. 15; CRCL's active loss).
    The mass 1 - y_i goes nowhere: a pair that is not believed trains nothing.
    labels, n x n: entry [i, j] says how much image i and text j belong together. Row i is the target of image
    i among the texts, column i that of text i among the images. They are used as they are, not normalised:
    rows that sum to one give a proper cross-entropy, the identity the plain loss, diag(y) the vector's.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(
            f"The similarity matrix must be square, pairs on its diagonal; got {tuple(similarity.shape)}."
        )
    logits = _scaled(similarity, temperature)
    # In the logarithm from the start: a softmax that has underflown to zero would give an infinite loss.
    log_i2t, log_t2i = logits.log_softmax(dim=1), logits.log_softmax(dim=0)
    if labels is not None and labels.ndim == 2:
        return -(labels * log_i2t).sum(dim=1) - (labels * log_t2i).sum(dim=0)
    per_pair = -(log_i2t.diagonal() + log_t2i.diagonal())
    return per_pair if labels is None else labels * per_pair


def _scaled(similarity: Tensor, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"The temperature must be positive, not {temperature}.")
    return full_precision(similarity) / temperature
