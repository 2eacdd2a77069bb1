"""A tiny data set that a few epochs really learn: images and captions made from the same topics."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from truepair.training.schedule import Schedule

REGIONS, WIDTH, TOPICS, CAPTIONS = 6, 12, 10, 5
IMAGES = {"train": 40, "dev": 12, "test": 12}
SMALL_MATCHER = {"word_width": 8, "embedding": 16, "position_width": 8, "pooling_hidden": 4}


def write_split(folder: Path, split: str, images: int, rng: np.random.Generator, looks: np.ndarray) -> None:
    """Every image shows two topics in its regions; every caption names them among filler words."""
    features = np.empty((images, REGIONS, WIDTH), np.float32)
    lines = []
    for image in range(images):
        topics = rng.choice(TOPICS, 2, replace=False)
        features[image] = looks[rng.permutation(np.repeat(topics, REGIONS // 2))]
        for _ in range(CAPTIONS):
            words = [f"topic{topic}" for topic in topics]
            fillers = [f"filler{word}" for word in rng.integers(0, 6, rng.integers(1, 4))]
            lines.append(" ".join(rng.permutation(words + fillers)))
    features += 0.3 * rng.standard_normal(features.shape).astype(np.float32)
    np.save(folder / f"{split}_ims.npy", features)
    (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the precomputed layout with the splits train, dev and test."""
    folder = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(5)
    looks = rng.standard_normal((TOPICS, WIDTH)).astype(np.float32)
    for split, images in IMAGES.items():
        write_split(folder, split, images, rng, looks)
    return folder


@pytest.fixture(scope="session")
def quick() -> Callable[..., dict]:
    """Arguments of `fit` for a run of a second or two; keywords change the schedule."""

    def arguments(**changes) -> dict:
        values = {"warmup": 1, "pieces": (2,), "decay_after": 1, "learning_rate": 5e-3, "batch_size": 40}
        return {
            "schedule": Schedule(**{**values, **changes}),
            "matcher_options": SMALL_MATCHER,
            "quiet": True,
        }

    return arguments
