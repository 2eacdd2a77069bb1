"""SGR, SAF and SCAN as their papers describe them: one text after the other, plain torch, nothing folded or shared.

They read the parameters of our matchers, so that both can be compared on any weights.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from truepair.matchers.base import ImageCodes, TextCodes
from truepair.matchers.sgraf import SAF, SGR


def unit(x: Tensor) -> Tensor:
    return x / (x.pow(2).sum(dim=-1, keepdim=True).sqrt() + 1e-8)


def attended(words: Tensor, regions: Tensor, smooth: float = 9.0) -> Tensor:
    """words: n x t x d. regions: n x k x d. What every word sees of the regions, n x t x d."""
    scores = unit(F.leaky_relu(torch.bmm(regions, words.transpose(1, 2)), 0.1))
    weights = torch.softmax(scores.transpose(1, 2) * smooth, dim=-1)
    return torch.bmm(weights, regions)


def alignment_nodes(matcher: SGR | SAF, images: ImageCodes, words: Tensor, vector: Tensor) -> Tensor:
    """One text with all images. words: t x d. vector: d. Returns n x (t + 1) x s."""
    repeated = words[None].repeat(len(images), 1, 1)
    local = (unit(attended(repeated, images.regions)) - repeated).pow(2)
    local = unit(F.linear(local, matcher.word_alignment.weight, matcher.word_alignment.bias))
    whole = (images.vectors - vector).pow(2)
    whole = unit(F.linear(whole, matcher.global_alignment.weight, matcher.global_alignment.bias))
    return torch.cat([whole[:, None], local], dim=1)


def reason(matcher: SGR, nodes: Tensor) -> Tensor:
    for step in matcher.steps:
        query = F.linear(nodes, step.query.weight, step.query.bias)
        key = F.linear(nodes, step.key.weight)
        edges = torch.softmax(torch.bmm(query, key.transpose(1, 2)), dim=-1)
        nodes = F.relu(F.linear(torch.bmm(edges, nodes), step.out.weight, step.out.bias))
    return nodes[:, 0]


def filtrate(matcher: SAF, nodes: Tensor) -> Tensor:
    attention, norm = matcher.filtration.attention, matcher.filtration.norm
    scores = norm(F.linear(nodes, attention.weight, attention.bias).permute(0, 2, 1))
    gates = torch.sigmoid(scores)
    return unit(torch.bmm(gates / (gates.sum(dim=-1, keepdim=True) + 1e-8), nodes).squeeze(1))


def similarity(matcher: SGR | SAF, images: ImageCodes, texts: TextCodes) -> Tensor:
    """n x m; every image has all its regions."""
    columns = []
    for words, vector, length in zip(texts.words, texts.vectors, texts.lengths.tolist(), strict=True):
        nodes = alignment_nodes(matcher, images, words[:length], vector)
        whole = reason(matcher, nodes) if isinstance(matcher, SGR) else filtrate(matcher, nodes)
        columns.append(torch.sigmoid(F.linear(whole, matcher.evaluation.weight, matcher.evaluation.bias)))
    return torch.cat(columns, dim=1)
