"""Extractors by name: what turns pictures into regions."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from truepair.errors import TruepairError


class Extractor(Protocol):
    """Turns RGB pictures into regions.

    whitened: whether the regions still have to go through PCA fitted on the training split.
    target_side: pictures will be scaled to this side, so that JPEG files may be decoded coarsely; None to keep all.
    """

    name: str
    whitened: bool
    target_side: int | None

    def describe(self, pictures: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Pictures to pictures x regions x width."""
        ...

    def settings(self) -> dict[str, Any]:
        """What the features depend on, for the manifest."""
        ...


def make_extractor(name: str) -> Extractor:
    """patches, or hf:<name or folder> for a vision model that transformers can read."""
    if name == "patches":
        from truepair.features.patches import Patches

        return Patches()
    if name.startswith("hf:") and len(name) > 3:
        from truepair.features.huggingface import HuggingFace

        return HuggingFace(name[3:])
    raise TruepairError(
        f"there is no extractor '{name}'. There are: patches, and hf:<name or folder> for a vision model "
        "that transformers can read, such as hf:openai/clip-vit-base-patch32."
    )
