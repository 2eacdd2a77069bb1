"""What the readers of the different layouts share: names of splits, ids, and how captions lie on images."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair.errors import DataError

# The published codes and data sets use these names for the same part.
_SYNONYMS: dict[str, tuple[str, ...]] = {
    "dev": ("val", "valid"),
    "val": ("dev", "valid"),
    "valid": ("val", "dev"),
}
_ORDER = ("train", "dev", "val", "valid", "test", "testall")


def choose_split(where: Path, split: str, available: Sequence[str]) -> str:
    """The split that is asked for under the name it has here; dev and val are the same."""
    for name in [split, *_SYNONYMS.get(split, ())]:
        if name in available:
            return name
    raise DataError(
        where,
        f"there is no split '{split}'.",
        f"It has: {', '.join(in_usual_order(available)) or 'none'}. Ask for one of them.",
    )


def in_usual_order(splits: Sequence[str]) -> list[str]:
    """Training part first, then those to validate and test on, then any others by name."""
    return sorted(splits, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def pair_ids(split: str, rows: Iterable[int]) -> list[str]:
    """The ids of pairs whose file gives them none: the split and the row in the file."""
    return [f"{split}-{row}" for row in rows]


def image_ids(split: str, count: int) -> list[str]:
    """The ids of images whose file gives them none: the split and the row."""
    return [f"{split}-image-{row}" for row in range(count)]


def texts_per_image(texts: int, images: int, texts_path: Path, images_path: Path, unit: str = "line") -> int:
    """How many texts each image has, the same number for all; texts of one image lie next to each other."""
    per_image = texts // images
    if per_image and texts % images == 0:
        return per_image
    wanted = max(1, round(texts / images))
    raise DataError(
        texts_path,
        f"there are {texts:,} texts for the {images:,} images of {images_path.name}; "
        f"with {wanted} an image there would have to be {wanted * images:,}.",
        "Every image needs the same number of texts, in the order of the images: "
        "add what is missing or remove what is too much on either side.",
        row=f"{unit} {texts:,} is the last" if unit == "line" else f"row {texts - 1:,} is the last",
    )


def without_repeats(images: NDArray[Any], texts: int) -> tuple[NDArray[Any], int]:
    """The images once each, and how many texts each has, where the file holds every image five times.

    Some of the field's files repeat an image's features for each of its five captions, so that images and
    captions are equally many. They are taken for repeats only if every five neighbours are alike.
    """
    repeats = 5
    if len(images) != texts or texts % repeats:
        return images, 1
    groups = np.unique(np.linspace(0, texts // repeats - 1, num=64, dtype=np.int64))
    first = np.asarray(images[groups * repeats])
    if len(groups) > 1 and np.array_equal(first[0], first[-1]):
        return images, 1  # constant features tell nothing
    for offset in range(1, repeats):
        if not np.array_equal(first, images[groups * repeats + offset]):
            return images, 1
    corner = np.asarray(images[:, 0, :8]).reshape(texts // repeats, repeats, -1)
    if not np.array_equal(corner, np.broadcast_to(corner[:, :1], corner.shape)):
        return images, 1
    return images[::repeats], repeats
