"""A small audit on disk whose numbers are made up, and whose texts are hostile."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from PIL import Image

from truepair import __version__
from truepair.audit.folder import SUMMARY, SUSPECTS, with_pictures
from truepair.beliefs.witness import hear
from truepair.pairs.noise import caption_noise
from truepair.pairs.readers import load_pairs

HOSTILE = [
    '<script>alert("x")</script> a dog & a cat',
    '</style></title><img src="http://evil.example/x.png" onerror=alert(1)>',
    "an escape \x1b[2J\x1b]0;owned\x07 for terminals",
    "[bold red]markup[/] {{ 7 * 7 }} {% raw %}",
    "ein Bär läuft \u202egnp.exe\u202c durch " + "sehr " * 400 + "langen Text",
    "x" * 3000,
]


@pytest.fixture
def make_audit(tmp_path):
    """make_audit(flagged=3, pictures=True, truth=True) gives the folder of an audit over data beside it."""

    def make(pairs=12, flagged=6, *, pictures=True, truth=True):
        data = tmp_path / "data"
        data.mkdir()
        generator = np.random.default_rng(0)
        np.save(data / "train_ims.npy", generator.normal(size=(pairs, 2, 4)).astype(np.float16))
        texts = [HOSTILE[row % len(HOSTILE)] + f" {row}" for row in range(pairs)]
        (data / "train_caps.txt").write_text("\n".join(texts) + "\n")
        columns = {"image_row": np.arange(pairs), "image_id": [f'im"{row}<b>' for row in range(pairs)]}
        if pictures:
            for row in range(pairs):
                Image.new("RGB", (300, 200), (20 * row, 90, 120)).save(data / f"{row}.png")
            (data / "1.png").unlink()
            (data / "2.png").write_bytes(b"<html>not found</html>")
            columns["picture"] = [f"{row}.png" for row in range(pairs)]
        pl.DataFrame(columns).write_parquet(data / "train_pairs.parquet")
        loaded = load_pairs(data)
        probability = np.where(np.arange(pairs) < flagged, 0.999 - 0.09 * np.arange(pairs) / pairs, 0.02)
        other = np.roll(np.arange(pairs), 1)
        paths = loaded.picture_paths
        suspects = pl.DataFrame(
            {
                "pair_id": loaded.ids,
                "image_id": loaded.image_ids,
                "image_row": loaded.image_of,
                "picture": [None] * pairs if paths is None else list(paths),
                "text": loaded.texts,
                "match_score": 1 - probability,
                "mismatch_probability": probability,
                "is_mismatch": probability > 0.9,
                "other_text": [loaded.texts[row] for row in other],
                "other_text_confidence": np.full(pairs, 0.25),
                "other_image_id": [
                    None if row == 3 else loaded.image_ids[other[row]] for row in range(pairs)
                ],
                "other_image_row": [None if row == 3 else int(other[row]) for row in range(pairs)],
                "other_picture": [None] * pairs if paths is None else [paths[row] for row in other],
                "other_image_confidence": np.full(pairs, 0.75),
                "is_rematch": np.arange(pairs) < min(2, flagged),
                "unsupported_words": [["dog", "script"] if row % 2 == 0 else [] for row in range(pairs)],
            },
            schema_overrides={"picture": pl.String, "other_picture": pl.String},
        )
        if truth:
            suspects = suspects.with_columns(truly_mismatched=pl.Series(np.arange(pairs) % 5 < 3))
        edges = np.linspace(-1, 1, 11)
        summary = {
            "kind": "quick",
            "source": str(data),
            "split": "train",
            "pairs": pairs,
            "images": pairs,
            "estimated_share": 0.4,
            "interval": [0.3, 0.5],
            "diagnostic": {"kind": "structured", "says": "The mismatches are <not> random."},
            "error_rate": 0.05,
            "seed": 0,
            "flagged": flagged,
            "kept": pairs - flagged,
            "rematch_proposals": min(2, flagged),
            "apply_rematch": False,
            "truth": {"share": 0.6} if truth else None,
            "notes": [],
            "scores": {"edges": edges.tolist(), "given": [1] * 10, "null": [5] * 5 + [0] * 5},
            "load": {"path": str(data), "split": "train"},
            "data": loaded.provenance.describe(),
            "versions": {"truepair": __version__},
        }
        folder = tmp_path / "audit"
        folder.mkdir()
        with_pictures(suspects, folder, stored=True).write_parquet(folder / SUSPECTS)
        (folder / SUMMARY).write_text(json.dumps(summary))
        return folder

    return make


@pytest.fixture(scope="session")
def pictured_words(tmp_path_factory):
    """Data that a linear model understands: an image is the sum of its words, a caption has most of them."""
    folder = tmp_path_factory.mktemp("pictured")
    generator = np.random.default_rng(7)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ar", "el", "im", "ox", "un")]
    vectors = generator.normal(size=(len(words), 24))
    for split, images in (("train", 400), ("dev", 40)):
        has = np.stack([generator.choice(len(words), 5, replace=False) for _ in range(images)])
        features = vectors[has].sum(1)[:, None] + generator.normal(0, 0.6, (images, 2, 24))
        np.save(folder / f"{split}_ims.npy", features.astype(np.float16))
        lines = [
            " ".join(words[w] for w in generator.permutation(has[i])[:4])
            for i in range(images)
            for _ in range(3)
        ]
        (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def noisy(pictured_words):
    """Pairs of which three in ten captions have another image."""
    pairs = load_pairs(pictured_words)
    return replace(pairs, image_of=caption_noise(pairs.image_of, 0.3, 1), true_image_of=pairs.image_of)


@pytest.fixture(scope="module")
def heard(noisy):
    """What the witness says of them."""
    return hear(noisy)
