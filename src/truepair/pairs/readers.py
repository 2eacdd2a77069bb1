"""Reading pairs from whatever lies at a path."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from truepair.errors import DataError
from truepair.pairs import embeddings, precomputed, table
from truepair.pairs.core import Pairs
from truepair.pairs.layouts import in_usual_order
from truepair.pairs.noise import Granularity, Noise, apply_noise_file, make_noise


def load_pairs(
    path: str | Path,
    split: str = "train",
    *,
    noise: float | str | Path | Noise | None = None,
    noise_seed: int = 123,
    noise_protocol: Granularity = "caption",
    skip_empty: bool = False,
    features: str | Path | None = None,
) -> Pairs:
    """Read one split of a data set. Feature files are mapped into memory, not read.

    path: a folder in the precomputed layout (`train_ims.npy` and `train_caps.txt`), a folder with `images.npy`
        and `texts.npy`, or a table of pairs. docs/formats.md describes all of them.
    split: train, dev (or val, which is the same), test, ... as the files are called.
    noise: a ratio to mismatch pairs at random, or the path of a published index file. noise_seed and
        noise_protocol belong to a ratio: "caption" moves single captions, "image" all captions of an image.
    skip_empty: leave out pairs whose caption is empty instead of refusing the data.
    features: the feature file of a table, where its place does not tell.
    """
    pairs = _layout_of(Path(path), features).read(split, skip_empty=skip_empty)
    # Published index files count every caption, so noise comes before captions are left out.
    pairs = _noisy(pairs, noise, noise_seed, noise_protocol)
    return _without_empty(pairs) if skip_empty else pairs


def find_splits(path: str | Path) -> list[str]:
    """The names of the splits at a path, the training split first."""
    return in_usual_order(_layout_of(Path(path), None).splits())


@dataclass(frozen=True)
class _Layout:
    splits: Callable[[], list[str]]
    read: Callable[..., Pairs]  # called with a split and skip_empty


def _layout_of(path: Path, features: str | Path | None) -> _Layout:
    if not path.exists():
        raise DataError(path, "there is nothing at this path.", "Check the path.")
    if path.is_dir():
        if precomputed.splits_of(path):
            return _Layout(partial(precomputed.splits_of, path), partial(precomputed.read, path))
        if embeddings.splits_of(path):
            return _Layout(partial(embeddings.splits_of, path), partial(embeddings.read, path))
    table_path = path if path.is_file() else table.table_in(path)
    if table_path is None:
        raise DataError(
            path,
            "no data set is recognised in this folder.",
            "It needs train_ims.npy with train_caps.txt, or images.npy with texts.npy, or pairs.parquet (.csv, "
            ".jsonl) with a feature file. See docs/formats.md.",
        )
    features_path = None if features is None else Path(features)
    return _Layout(
        partial(table.splits_of, table_path), partial(table.read, table_path, features=features_path)
    )


def _noisy(pairs: Pairs, noise: float | str | Path | Noise | None, seed: int, protocol: Granularity) -> Pairs:
    if noise is None:
        return pairs
    if isinstance(noise, Noise):
        return make_noise(pairs, noise)
    if isinstance(noise, str | Path):
        return apply_noise_file(pairs, noise)
    return make_noise(pairs, Noise(float(noise), seed, protocol))


def _without_empty(pairs: Pairs) -> Pairs:
    if not len(pairs.texts):
        return pairs
    kept = np.fromiter((bool(text) for text in pairs.texts), dtype=np.bool_, count=len(pairs))
    if kept.all():
        return pairs
    if not kept.any():
        paths = [source.path for source in pairs.provenance.sources if not source.path.endswith(".npy")]
        raise DataError(paths[0], "all captions are empty.", "Write at least one word for some of the pairs.")
    provenance = replace(pairs.provenance, set_aside=int((~kept).sum()))
    return replace(pairs.subset(kept), provenance=provenance)
