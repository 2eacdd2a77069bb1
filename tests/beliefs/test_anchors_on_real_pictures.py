"""The paper's figure of anchor discrepancies, on the pictures and names that come with the package."""

import io
import zipfile
from importlib.resources import files

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from truepair.beliefs.anchors import anchor_discrepancy, frequency_representation
from truepair.beliefs.text_features import TextBasis
from truepair.features.patches import describe, scaled

BATCH = 128


@pytest.fixture(scope="module")
def matched() -> tuple[torch.Tensor, torch.Tensor]:
    """Mean patches of real drawings and vectors of what people call them, all of them matched pairs."""
    bundle = files("truepair.pairs.demo")
    table = pl.read_csv(
        io.BytesIO((bundle / "captions.tsv").read_bytes()), separator="\t", quote_char=None
    ).filter(pl.col("split") == "train")
    things = table.group_by("path", maintain_order=True).agg(pl.col("text").str.join(" ")).sample(500, seed=0)
    with zipfile.ZipFile(io.BytesIO((bundle / "pictures.zip").read_bytes())) as archive:
        drawings = [Image.open(io.BytesIO(archive.read(path))) for path in things["path"][: 2 * BATCH]]
        images = np.stack([describe(scaled(drawing.convert("RGB"))).mean(0) for drawing in drawings])
    texts = things["text"].to_list()
    return torch.from_numpy(images), torch.from_numpy(TextBasis.fit(texts, width=64)(texts[: 2 * BATCH]))


@pytest.mark.parametrize("batch", [slice(BATCH), slice(BATCH, None)])
def test_fourier_alignment_lowers_the_discrepancy_of_clean_anchors(matched, batch):
    images, texts = (side[batch] for side in matched)
    before = anchor_discrepancy(images, texts)
    after = anchor_discrepancy(frequency_representation(images), frequency_representation(texts))
    assert after.mean() < 0.6 * before.mean()
    assert (after > 0.3).float().mean() < 0.7 * (before > 0.3).float().mean()
