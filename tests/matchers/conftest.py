"""Small matchers of every kind, and random batches that fit them."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.registry import MATCHERS, build_matcher

WIDTH, VOCABULARY = 20, 40
SMALL = {"word_width": 6, "embedding": 32}
OPTIONS = {
    "sgr": SMALL | {"similarity": 16},
    "saf": SMALL | {"similarity": 16},
    "sgraf": SMALL | {"similarity": 16},
    "scan": SMALL,
    "vse_infty": SMALL | {"position_width": 8, "pooling_hidden": 8},
    "projection": {"embedding": 16, "hidden": 12},
}


@dataclass
class Batch:
    regions: Tensor
    mask: Tensor
    tokens: Tensor
    lengths: Tensor

    def codes(self, matcher: Matcher) -> tuple[ImageCodes, TextCodes]:
        return matcher.encode_images(self.regions, self.mask), matcher.encode_texts(self.tokens, self.lengths)


def small_matcher(name: str, seed: int = 0, **options: object) -> Matcher:
    """A small matcher whose biases and running statistics are not at their trivial start."""
    torch.manual_seed(seed)
    sizes = {"vocabulary_size": VOCABULARY} if MATCHERS[name].texts == "words" else {"text_width": WIDTH}
    matcher = build_matcher(name, image_width=WIDTH, **sizes, **OPTIONS[name] | options)
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for label, buffer in matcher.named_buffers():
            if buffer.is_floating_point():
                noise = torch.rand_like(buffer)
                buffer.copy_(noise + 0.5 if label.endswith("var") else noise - 0.5)
    return matcher.eval()


def random_batch(name: str, images: int = 6, texts: int = 9, regions: int = 7, seed: int = 1) -> Batch:
    """Images with masks in any arrangement, texts of several lengths; padding holds rubbish."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(images, regions, generator=rng) < 0.7
    mask[:, 2] = True
    values = torch.randn(images, regions, WIDTH, generator=rng)
    lengths = torch.randint(1, 9, (texts,), generator=rng)
    lengths[0] = 1
    if MATCHERS[name].texts == "vectors":
        return Batch(values, mask, torch.randn(texts, WIDTH, generator=rng), lengths)
    tokens = torch.randint(1, VOCABULARY, (texts, 10), generator=rng)
    return Batch(values, mask, tokens, lengths)


@pytest.fixture(params=list(MATCHERS))
def name(request: pytest.FixtureRequest) -> str:
    """Every name of the registry in turn."""
    return str(request.param)


@pytest.fixture
def make_matcher() -> Callable[..., Matcher]:
    return small_matcher


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return random_batch


def published(arrays: dict[str, np.ndarray], prefix: str = "") -> dict[str, Tensor]:
    """The recorded parameters and buffers under their published names."""
    parts = ("img_enc.", "txt_enc.", "sim_enc.")
    names = [name for name in arrays if name.startswith(tuple(prefix + part for part in parts))]
    return {name.removeprefix(prefix): torch.tensor(arrays[name]) for name in names}


@pytest.fixture
def published_weights() -> Callable[..., dict[str, Tensor]]:
    return published


@pytest.fixture(scope="session")
def plain() -> ModuleType:
    """tests/matchers/plain.py, the loops over texts that the matchers are compared with."""
    spec = importlib.util.spec_from_file_location("plain", Path(__file__).with_name("plain.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
