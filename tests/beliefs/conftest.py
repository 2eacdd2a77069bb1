"""Data that a linear model understands, with similar pictures in it."""

from dataclasses import replace

import numpy as np
import pytest

from truepair.beliefs.witness import hear
from truepair.pairs.noise import caption_noise


@pytest.fixture(scope="session")
def scenes(tmp_path_factory):
    """Every image is of one of twelve scenes and shows six words, most of them usual there; texts name four."""
    folder = tmp_path_factory.mktemp("scenes")
    generator = np.random.default_rng(11)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ar", "el", "im", "ox", "un")]
    looks = generator.normal(size=(len(words), 24))
    usual = np.stack([generator.choice(len(words), 12, replace=False) for _ in range(12)])
    features, lines = [], []
    for _ in range(400):
        shown = generator.choice(usual[generator.integers(12)], 6, replace=False)
        features.append(looks[shown].sum(0) + generator.normal(0, 0.5, (2, 24)))
        lines += [" ".join(words[w] for w in generator.permutation(shown)[:4]) for _ in range(4)]
    np.save(folder / "train_ims.npy", np.array(features, dtype=np.float16))
    (folder / "train_caps.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def noisy(clean):
    """A module's `clean` pairs, 30 % of the texts moved."""
    return replace(clean, image_of=caption_noise(clean.image_of, 0.3, 1), true_image_of=clean.image_of)


@pytest.fixture(scope="module")
def heard(noisy):
    return hear(noisy)
