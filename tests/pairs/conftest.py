"""Small data sets in the layouts that are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WORDS = ("a", "black", "dog", "runs", "on", "green", "grass", "two", "children", "play", "red", "ball")


@pytest.fixture
def captions() -> Callable[..., list[str]]:
    """Random captions of a few words."""

    def make(count: int, seed: int = 0) -> list[str]:
        generator = np.random.default_rng(seed)
        return [" ".join(generator.choice(WORDS, size=generator.integers(2, 9))) + " ." for _ in range(count)]

    return make


@pytest.fixture
def features() -> Callable[..., Any]:
    """Random features, images x regions x width."""

    def make(images: int, regions: int = 4, width: int = 6, dtype: str = "float16", seed: int = 0) -> Any:
        return np.random.default_rng(seed).normal(size=(images, regions, width)).astype(dtype)

    return make


@pytest.fixture
def precomputed(
    tmp_path: Path, captions: Callable[..., list[str]], features: Callable[..., Any]
) -> Callable[..., Path]:
    """Write a split in the precomputed layout and give its folder."""

    def write(
        images: int = 6,
        per_image: int = 5,
        split: str = "train",
        texts: list[str] | None = None,
        **options: Any,
    ) -> Path:
        np.save(tmp_path / f"{split}_ims.npy", features(images, **options))
        texts = captions(images * per_image) if texts is None else texts
        (tmp_path / f"{split}_caps.txt").write_bytes("".join(f"{text}\n" for text in texts).encode())
        return tmp_path

    return write
