"""One look over all pairs in evaluation mode, without a graph: what divisions are made from."""

from collections.abc import Iterator

import torch
from torch import Tensor

from truepair.methods.base import Method, Sweep
from truepair.training.scores import Scores

NULLS_PER_PAIR = 8


def sweep(method: Method, batches: Iterator[tuple[Tensor, Tensor, Scores]], pairs: int) -> Sweep:
    """Per-pair values of one network. batches: pair rows, their image rows, and scores without gradient.

    Random re-pairings come for free: entries of a random batch's matrix off its diagonal.
    """
    values: dict[str, Tensor] = {}
    matched = torch.zeros(pairs)
    nulls = torch.full((pairs, NULLS_PER_PAIR), torch.nan)
    for rows, image_rows, scores in batches:
        for name, value in method.sweep(scores).items():
            values.setdefault(name, torch.zeros(pairs))[rows] = value.float().cpu()
        similarity = scores.constant.cpu()
        matched[rows] = similarity.diagonal()
        nulls[rows] = repaired(similarity, image_rows)
    return Sweep(values, matched, nulls)


def repaired(similarity: Tensor, image_rows: Tensor) -> Tensor:
    """Scores of every image with a few texts that are paired with other images, n x few; NaN where that failed.

    The texts are the next ones of the batch, whose order is random already.
    """
    n = len(similarity)
    own = torch.arange(n)[:, None]
    other = (own + 1 + torch.arange(NULLS_PER_PAIR)[None]) % n
    scores = similarity[own, other]
    return scores.masked_fill(image_rows[own] == image_rows[other], torch.nan)
