"""Two arrays of embeddings: `images.npy` and `texts.npy`, with a split's name in front where there are several."""

from pathlib import Path

import numpy as np

from truepair.errors import DataError
from truepair.pairs.captions import read_captions
from truepair.pairs.core import Pairs, Provenance, Source
from truepair.pairs.features import open_features, open_vectors
from truepair.pairs.layouts import choose_split, image_ids, pair_ids, texts_per_image
from truepair.pairs.manifest import read_manifest

_IMAGES, _TEXTS, _WORDS, _PAIRS = "images.npy", "texts.npy", "texts.txt", "pairs.parquet"


def splits_of(folder: Path) -> list[str]:
    """The splits that have both arrays; files without a prefix are `train`."""
    paths = [folder / _IMAGES, *folder.glob(f"*_{_IMAGES}")]
    prefixes = [path.name.removesuffix(_IMAGES) for path in paths if path.exists()]
    complete = [prefix for prefix in prefixes if (folder / f"{prefix}{_TEXTS}").exists()]
    return [prefix.removesuffix("_") or "train" for prefix in complete]


def read(folder: Path, split: str, *, skip_empty: bool = False) -> Pairs:
    """Read one split. texts.txt, if it is there, has the texts themselves, one a line; pairs.parquet has ids
    and, in the column image_row, which image each text belongs to."""
    name = choose_split(folder, split, splits_of(folder))
    prefix = f"{name}_" if (folder / f"{name}_{_IMAGES}").exists() else ""
    paths = [folder / f"{prefix}{_IMAGES}", folder / f"{prefix}{_TEXTS}"]
    images, vectors = open_features(paths[0]), open_vectors(paths[1])
    manifest_path = folder / f"{prefix}{_PAIRS}"
    manifest = read_manifest(manifest_path, len(vectors)) if manifest_path.exists() else None
    if manifest is not None and manifest.image_row is not None:
        image_of = manifest.image_row
    else:
        per_image = texts_per_image(len(vectors), len(images), paths[1], paths[0], unit="row")
        image_of = np.repeat(np.arange(len(images), dtype=np.int64), per_image)
    texts: list[str] = []
    words_path = folder / f"{prefix}{_WORDS}"
    if words_path.exists():
        captions = read_captions(words_path)
        if not skip_empty:
            captions.check_words()
        if len(captions) != len(vectors):
            raise DataError(
                words_path,
                f"there are {len(captions):,} texts for the {len(vectors):,} vectors of {paths[1].name}.",
                "Write one text a line, in the order of the vectors.",
                row=f"line {len(captions):,} is the last",
            )
        texts = captions.texts
        paths.append(words_path)
    names = image_ids(name, len(images))
    if manifest is not None:
        manifest.check_rows(len(images))
        paths.append(manifest_path)
    return Pairs(
        images=images,
        texts=texts,
        image_of=image_of,
        ids=pair_ids(name, range(len(vectors)))
        if manifest is None or manifest.pair_id is None
        else manifest.pair_id,
        image_ids=names if manifest is None else manifest.image_ids(image_of, names),
        split=name,
        provenance=Provenance("embeddings", tuple(Source(str(path)) for path in paths)),
        true_image_of=None if manifest is None else manifest.true_image_row,
        text_vectors=vectors,
        picture_paths=None if manifest is None else manifest.picture_paths(image_of, len(images)),
    )
