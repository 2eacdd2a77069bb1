"""Two arrays of embeddings: `images.npy` and `texts.npy`, with a split's name in front where there are several."""

from pathlib import Path

import numpy as np

from truepair.errors import DataError
from truepair.pairs.captions import read_captions
from truepair.pairs.core import Pairs, Provenance, Source
from truepair.pairs.features import open_features, open_vectors
from truepair.pairs.layouts import choose_split, image_ids, pair_ids, texts_per_image

_IMAGES, _TEXTS, _WORDS = "images.npy", "texts.npy", "texts.txt"


def splits_of(folder: Path) -> list[str]:
    """The splits that have both arrays; files without a prefix are `train`."""
    paths = [folder / _IMAGES, *folder.glob(f"*_{_IMAGES}")]
    prefixes = [path.name.removesuffix(_IMAGES) for path in paths if path.exists()]
    complete = [prefix for prefix in prefixes if (folder / f"{prefix}{_TEXTS}").exists()]
    return [prefix.removesuffix("_") or "train" for prefix in complete]


def read(folder: Path, split: str, *, skip_empty: bool = False) -> Pairs:
    """Read one split. texts.txt, if it is there, has the texts themselves, one a line."""
    name = choose_split(folder, split, splits_of(folder))
    prefix = f"{name}_" if (folder / f"{name}_{_IMAGES}").exists() else ""
    paths = [folder / f"{prefix}{_IMAGES}", folder / f"{prefix}{_TEXTS}"]
    images, vectors = open_features(paths[0]), open_vectors(paths[1])
    per_image = texts_per_image(len(vectors), len(images), paths[1], paths[0], unit="row")
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
    return Pairs(
        images=images,
        texts=texts,
        image_of=np.repeat(np.arange(len(images), dtype=np.int64), per_image),
        ids=pair_ids(name, range(len(vectors))),
        image_ids=image_ids(name, len(images)),
        split=name,
        provenance=Provenance("embeddings", tuple(Source(str(path)) for path in paths)),
        text_vectors=vectors,
    )
