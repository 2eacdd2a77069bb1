"""What every test may ask for: recorded numbers of the published implementations, and a tiny data set."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before numpy and torch start: the tensors of tests are small, the tests themselves run side by side, and threads
# that wait for each other on a busy machine take many times as long as one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

# Properties are tried on the same examples every time, so that whether a change may land does not depend on luck;
# HYPOTHESIS_PROFILE=random looks for new ones. A busy machine may take long over any of them.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

ORACLES = Path(__file__).parent / "oracles"


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], dict[str, np.ndarray]]:
    """oracle("sgr") gives the arrays of tests/oracles/sgr.npz by name; tests/oracles/README.md describes them."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(ORACLES / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture(scope="session")
def oracle_settings() -> Callable[[str], dict[str, Any]]:
    """oracle_settings("sgr") gives the hyper-parameters that the numbers were recorded with."""
    return lambda name: json.loads((ORACLES / f"{name}.json").read_text())


REGIONS, WIDTH, TOPICS, CAPTIONS = 6, 12, 10, 5
IMAGES = {"train": 40, "dev": 12, "test": 12}


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in the precomputed layout that a few epochs really learn.

    Every image shows two topics in its regions; every caption names both among filler words.
    """
    folder = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(5)
    looks = rng.standard_normal((TOPICS, WIDTH)).astype(np.float32)
    for split, images in IMAGES.items():
        features, lines = np.empty((images, REGIONS, WIDTH), np.float32), []
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
    return folder
