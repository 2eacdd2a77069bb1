"""The published algorithms written out plainly: loops over captions, queries and steps, torch's own GRU and sort.

They read the parameters of our matchers, so that both sides compute the same numbers.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta as beta_distribution
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from truepair.matchers.base import ImageCodes, TextCodes

_FILE = Path(__file__).parents[2] / "tests" / "matchers" / "plain.py"


def _loops() -> Any:
    """SGR and SAF one text after the other: the very file that the tests compare with."""
    spec = importlib.util.spec_from_file_location("plain", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


similarity: Callable[[Any, ImageCodes, TextCodes], Tensor] = _loops().similarity


def words(rnn: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    """The mean of both directions, m x t x h, by torch's packed sequences."""
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=inputs.shape[1])
    forward, backward = states.chunk(2, dim=-1)
    return (forward + backward) / 2


def alignment_texts(matcher: Any, tokens: Tensor, lengths: Tensor) -> TextCodes:
    """SGR's and SAF's texts: embedding, GRU, unit words, attention pooling text by text."""
    encoder = matcher.text_encoder
    states = words(encoder.rnn, encoder.dropout(encoder.embed(tokens)), lengths)
    codes = states / (states.norm(dim=-1, keepdim=True) + 1e-8)
    vectors = torch.cat(
        [matcher.text_pooling(codes[i : i + 1, :length], None) for i, length in enumerate(lengths.tolist())]
    )
    return TextCodes(codes, vectors, lengths)


def vse_images(matcher: Any, regions: Tensor, lengths: Tensor) -> Tensor:
    """VSE-infinity's images with their first so many regions: MLP on the real rows, torch's sort, pooled by softmax."""
    encoder = matcher.image_encoder
    real = torch.arange(regions.shape[1])[None] < lengths[:, None]
    rows = regions[real]
    hidden = F.relu(encoder.norm(F.linear(rows, encoder.hidden.weight, encoder.hidden.bias)))
    rows = F.linear(hidden, encoder.out.weight, encoder.out.bias) + F.linear(
        rows, encoder.fc.weight, encoder.fc.bias
    )
    codes = torch.zeros(*regions.shape[:2], rows.shape[1]).masked_scatter(real[..., None], rows)
    return _pooled(matcher.image_pooling, codes, lengths)


def vse_texts(matcher: Any, tokens: Tensor, lengths: Tensor) -> Tensor:
    """VSE-infinity's texts."""
    encoder = matcher.text_encoder
    return _pooled(matcher.text_pooling, words(encoder.rnn, encoder.embed(tokens), lengths), lengths)


def _pooled(pooling: Any, features: Tensor, lengths: Tensor) -> Tensor:
    """Published GPO: a GRU over the positions of every item of the batch, padding masked with large numbers."""
    count, width = features.shape[:2]
    positions = torch.arange(width, dtype=torch.float32)[:, None]
    rates = torch.exp(
        torch.arange(0, pooling.position_width, 2, dtype=torch.float32)
        * -(np.log(10_000.0) / pooling.position_width)
    )
    codes = torch.zeros(width, pooling.position_width)
    codes[:, 0::2], codes[:, 1::2] = torch.sin(positions * rates), torch.cos(positions * rates)
    states = words(pooling.gru, codes.unsqueeze(0).repeat(count, 1, 1), lengths)
    real = torch.arange(width)[None] < lengths[:, None]
    scores = pooling.linear(states).squeeze(-1).masked_fill(~real, -10_000)
    weights = F.softmax(scores / pooling.temperature, dim=1)
    ranked = features.masked_fill(~real[..., None], -10_000).sort(dim=1, descending=True)[0]
    vectors = (ranked.masked_fill(~real[..., None], 0) * weights[..., None]).sum(1)
    return vectors / (vectors.norm(dim=-1, keepdim=True) + 1e-8)


def hardest_triplet(scores: Tensor, margin: float) -> Tensor:
    """VSE++'s loss, the sum over the batch."""
    matched, own = scores.diagonal(), torch.eye(len(scores), dtype=torch.bool)
    texts = (margin + scores - matched[:, None]).clamp(min=0).masked_fill(own, 0)
    images = (margin + scores - matched[None, :]).clamp(min=0).masked_fill(own, 0)
    return texts.max(1)[0].sum() + images.max(0)[0].sum()


def mean_triplet(scores: Tensor, margin: float) -> Tensor:
    """NCR's warm-up loss, the sum over the batch of the mean over all negatives."""
    matched, own = scores.diagonal(), torch.eye(len(scores), dtype=torch.bool)
    texts = (margin + scores - matched[:, None]).clamp(min=0).masked_fill(own, 0)
    images = (margin + scores - matched[None, :]).clamp(min=0).masked_fill(own, 0)
    return texts.mean(1).sum() + images.mean(0).sum()


def crcl_loss(scores: Tensor, labels: Tensor, temperature: float, weight: float) -> Tensor:
    """CRCL's Eq. 8 row by row, the mean over the batch."""
    total = torch.zeros(())
    for answers in (scores, scores.T):
        probabilities = F.softmax(answers / temperature, dim=1)
        for i, label in enumerate(labels):
            others = torch.cat([probabilities[i, :i], probabilities[i, i + 1 :]])
            robust = torch.tan(others).sum() / torch.tan(probabilities[i]).sum() ** (1 - label)
            total = total - label * probabilities[i, i].log() + weight * robust
    return total / len(labels)


def recalls(scores: NDArray[Any], captions: int) -> tuple[list[float], list[float]]:
    """Recall at 1, 5, 10 both ways as published: every query sorts all answers. captions: of every image, in turn."""
    text_ranks = np.zeros(len(scores))
    for i, row in enumerate(scores):
        order = np.argsort(row)[::-1]
        text_ranks[i] = min(
            np.where(order == text)[0][0] for text in range(captions * i, captions * i + captions)
        )
    image_ranks = np.zeros(scores.shape[1])
    for text, column in enumerate(scores.T):
        image_ranks[text] = np.where(np.argsort(column)[::-1] == text // captions)[0][0]
    i2t, t2i = (
        [100.0 * float((ranks < k).mean()) for k in (1, 5, 10)] for ranks in (text_ranks, image_ranks)
    )
    return i2t, t2i


def beta_posterior(losses: NDArray[np.float64], iterations: int = 10) -> NDArray[np.float64]:
    """BiCro's Beta mixture, expectation maximisation over every single value; the probability of the low component."""
    x = np.clip(losses, 1e-4, 1 - 1e-4)
    alphas, betas, weights = [1.0, 2.0], [2.0, 1.0], np.array([0.5, 0.5])

    def weighted(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([weights[k] * beta_distribution.pdf(values, alphas[k], betas[k]) for k in (0, 1)])

    for _ in range(iterations):
        shares = weighted(x)
        shares[shares <= 1e-12] = 1e-12
        shares /= shares.sum(0)
        for k in (0, 1):
            mean = np.average(x, weights=shares[k])
            variance = np.average((x - mean) ** 2, weights=shares[k])
            alphas[k] = mean * (mean * (1 - mean) / variance - 1)
            betas[k] = alphas[k] * (1 - mean) / mean
        weights = shares.sum(1) / shares.sum()
    shares = weighted(losses)
    return np.asarray(shares[0] / (shares.sum(0) + 1e-12))
