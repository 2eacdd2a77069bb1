"""One look over all pairs in evaluation mode, without a graph: what divisions are made from."""

from collections.abc import Iterator

import torch
from torch import Tensor

from truepair.methods.base import Method, Sweep
from truepair.training.scores import Scores


def sweep(method: Method, batches: Iterator[tuple[Tensor, Scores]], decoys: Tensor) -> Sweep:
    """Per-pair values of one network. batches: pair rows and scores without gradient. decoys: n bools."""
    values: dict[str, Tensor] = {}
    matched = torch.zeros(len(decoys))
    for rows, scores in batches:
        for name, value in method.sweep(scores).items():
            values.setdefault(name, torch.zeros(len(decoys)))[rows] = value.float().cpu()
        matched[rows] = scores.constant.diagonal().float().cpu()
    return Sweep(values, matched, decoys)
