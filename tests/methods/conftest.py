"""A matcher whose codes are given, and steps of a batch around it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from truepair.beliefs.ledger import Ledger
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.methods.base import Step, Sweep
from truepair.training.schedule import Clock
from truepair.training.scores import Scores


class Given(Matcher):
    """Scores are looked up: vectors number the items, whose similarity stands in a matrix.

    has_sigmoid: the matrix holds logits. has_parts as of any matcher.
    """

    def __init__(self, matrix: Tensor, *, sigmoid: bool = False, parts: bool = True) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(matrix.clone())
        self.has_sigmoid, self.has_parts = sigmoid, parts

    def encode_images(self, regions, mask=None):
        raise NotImplementedError

    def encode_texts(self, tokens, lengths):
        raise NotImplementedError

    def logits(self, images: ImageCodes, texts: TextCodes) -> Tensor:
        return self.matrix[: len(images), : len(texts)]

    def pair_logits(self, images, texts, rows, columns):
        return self.matrix[rows, columns]

    def score(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.has_sigmoid else logits


@dataclass
class Batch:
    """A batch of n pairs and everything a method may look at."""

    similarity: Tensor
    peer: Tensor
    images: ImageCodes
    texts: TextCodes
    raw: Tensor
    sigmoid: bool = False
    parts: bool = True
    matcher: Given = field(init=False)

    def __post_init__(self) -> None:
        self.matcher = Given(self.similarity, sigmoid=self.sigmoid, parts=self.parts)

    def __len__(self) -> int:
        return len(self.similarity)

    def scores(self) -> Scores:
        return Scores(self.matcher, self.images, self.texts)

    def shuffled(self, order: Tensor) -> "Batch":
        return Batch(
            self.similarity[order][:, order],
            self.peer[order][:, order],
            self.images.take(order),
            self.texts.take(order),
            self.raw[order],
            self.sigmoid,
            self.parts,
        )

    def step(self, clock: Clock, pairs: Tensor | None = None, network: int = 0, stream: str = "all") -> Step:
        peer = Scores(Given(self.peer, sigmoid=self.sigmoid), self.images, self.texts)
        return Step(
            pairs=torch.arange(len(self)) if pairs is None else pairs,
            network=network,
            scores=self.scores(),
            others=lambda: [peer],
            again=lambda: self.scores(),
            stream=stream,
            clock=clock,
            raw_images=lambda: self.raw,
        )


def random_batch(n: int = 9, *, sigmoid: bool = False, parts: bool = True, seed: int = 0) -> Batch:
    """Similarities in [-1, 1] (or logits), unit vectors, regions and words of several counts."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng)

    def unit(x: Tensor) -> Tensor:
        return torch.nn.functional.normalize(x, dim=-1)

    similarity = torch.tanh(random(n, n) + 1.5 * torch.eye(n)) * (4 if sigmoid else 1)
    mask = torch.rand(n, 5, generator=rng) < 0.8
    mask[:, 0] = True
    lengths = torch.randint(1, 7, (n,), generator=rng)
    words = random(n, 6, 8) * (torch.arange(6) < lengths[:, None])[..., None]
    images = ImageCodes(random(n, 5, 8) * mask[..., None], unit(random(n, 8)), mask)
    texts = TextCodes(words, unit(random(n, 8)), lengths)
    return Batch(similarity, torch.tanh(random(n, n)), images, texts, random(n, 7), sigmoid, parts)


WARMING_UP = Clock(epoch=0, piece=0, epoch_in_piece=-1, pieces=(4,))
LATER = Clock(epoch=3, piece=0, epoch_in_piece=2, pieces=(4,))


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return random_batch


@pytest.fixture
def batch() -> Batch:
    return random_batch()


@pytest.fixture
def warming_up() -> Clock:
    return WARMING_UP


@pytest.fixture
def later() -> Clock:
    """The third of four epochs after the warm-up."""
    return LATER


@pytest.fixture
def make_ledger() -> Callable[..., Ledger]:
    """A ledger of two networks (or one) over n pairs with beliefs of all kinds."""

    def make(n: int = 9, networks: int = 2, seed: int = 1) -> Ledger:
        rng = torch.Generator().manual_seed(seed)
        ledger = Ledger.blank(networks, n)
        ledger.clean = torch.rand(networks, n, generator=rng)
        ledger.correspondence = torch.rand(networks, n, generator=rng)
        ledger.partition = (1 + (torch.arange(n) + torch.arange(networks)[:, None]) % 2).to(torch.uint8)
        return ledger

    return make


@pytest.fixture
def make_sweep() -> Callable[..., Sweep]:
    """What a look over the pairs found: losses and perhaps more, one value per pair."""

    def make(loss: Tensor, **values: Tensor) -> Sweep:
        return Sweep({"loss": loss, **values}, -loss, torch.zeros(len(loss), dtype=torch.bool))

    return make
