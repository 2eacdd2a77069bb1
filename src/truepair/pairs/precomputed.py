"""The field's precomputed layout: `train_ims.npy` with `train_caps.txt` or `train_caps.tsv`, and so on."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair.errors import DataError
from truepair.pairs.captions import Captions, read_captions, read_text
from truepair.pairs.core import Pairs, Provenance, Source
from truepair.pairs.features import open_array, open_features
from truepair.pairs.layouts import choose_split, image_ids, pair_ids, texts_per_image, without_repeats
from truepair.pairs.manifest import read_manifest

_IMAGES = "_ims.npy"


def splits_of(folder: Path) -> list[str]:
    """The splits that have an image file."""
    return [path.name.removesuffix(_IMAGES) for path in folder.glob(f"*{_IMAGES}")]


def read(folder: Path, split: str, *, skip_empty: bool = False) -> Pairs:
    """Read one split. With skip_empty, empty captions are let through and stay in place."""
    name = choose_split(folder, split, splits_of(folder))
    images_path = folder / f"{name}{_IMAGES}"
    captions_path = _captions_path(folder, name)
    images = open_features(images_path)
    captions = read_captions(captions_path)
    if not skip_empty:
        captions.check_words()
    sources = [images_path, captions_path]

    manifest_path = folder / f"{name}_pairs.parquet"
    manifest = read_manifest(manifest_path, len(captions)) if manifest_path.exists() else None
    if manifest is not None and manifest.image_row is not None:
        image_of = manifest.image_row
    else:
        images, per_image = without_repeats(images, len(captions))
        if per_image == 1:
            per_image = texts_per_image(len(captions), len(images), captions_path, images_path)
        image_of = np.repeat(np.arange(len(images), dtype=np.int64), per_image)
    if manifest is not None:
        manifest.check_rows(len(images))
        sources.append(manifest_path)

    names_of_images = _names_of_images(folder, name, captions, len(images), image_of)
    return Pairs(
        images=images,
        texts=captions.texts,
        image_of=image_of,
        ids=pair_ids(name, range(len(captions)))
        if manifest is None or manifest.pair_id is None
        else manifest.pair_id,
        image_ids=names_of_images if manifest is None else manifest.image_ids(image_of, names_of_images),
        split=name,
        provenance=Provenance("precomputed", tuple(Source(str(path)) for path in sources)),
        true_image_of=None if manifest is None else manifest.true_image_row,
        region_counts=_region_counts(folder / f"{name}_region_counts.npy", images),
        picture_paths=None if manifest is None else manifest.picture_paths(image_of, len(images)),
    )


def _captions_path(folder: Path, name: str) -> Path:
    candidates = [folder / f"{name}_caps.txt", folder / f"{name}_caps.tsv"]
    present = [path for path in candidates if path.exists()]
    if len(present) == 1:
        return present[0]
    if present:
        raise DataError(
            folder,
            f"{present[0].name} and {present[1].name} both exist.",
            "Keep the one that belongs to the images.",
        )
    raise DataError(
        folder,
        f"there are image features ({name}{_IMAGES}) but no captions for the split '{name}'.",
        f"Add {candidates[0].name} with one caption a line, or {candidates[1].name}.",
    )


def _names_of_images(
    folder: Path, name: str, captions: Captions, images: int, image_of: NDArray[np.int64]
) -> list[str]:
    """The ids that `_ids.txt` or the first column of a .tsv give the images, if they tell the images apart."""
    names = captions.ids
    path = folder / f"{name}_ids.txt"
    if path.exists():
        names = [line.strip() for line in read_text(path).rstrip("\n").split("\n")]
    if names is not None and len(names) == len(image_of) != images:
        first = np.unique(image_of, return_index=True)[1]
        names = [names[row] for row in first]
    if names is not None and len(names) == images == len(set(names)):
        return names
    return image_ids(name, images)


def _region_counts(path: Path, images: NDArray[Any]) -> NDArray[np.int64] | None:
    if not path.exists():
        return None
    counts = open_array(path)
    regions = images.shape[1]
    if counts.dtype.kind not in "iu" or counts.shape != (len(images),):
        raise DataError(path, f"one whole number an image is needed ({len(images):,}).", "Write it again.")
    wrong = np.flatnonzero((counts < 1) | (counts > regions))
    if len(wrong):
        raise DataError(
            path,
            f"an image cannot have {counts[wrong[0]]} of {regions} regions.",
            f"Counts lie between 1 and {regions}.",
            row=f"row {wrong[0]:,}",
        )
    return np.asarray(counts, dtype=np.int64)
