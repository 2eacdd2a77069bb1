"""Writing a data folder in the precomputed layout, with its table of pairs and its rejects."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from truepair.features.describe import Shards
from truepair.features.patches import Whitening
from truepair.features.sources import Caption, Index, Reject
from truepair.files import replaced_when_written
from truepair.progress import track


@dataclass(frozen=True, eq=False)
class Part:
    """One split of the result. pictures: their numbers in the index, in order. captions: its pairs, in order."""

    pictures: NDArray[np.int64]
    captions: list[Caption]


def write_features(
    out: Path,
    shards: Shards,
    parts: dict[str, Part],
    fine: NDArray[np.bool_],
    whitening: Whitening | None,
    *,
    shown: bool,
) -> tuple[int, int]:
    """Write `{split}_ims.npy` of all splits in one pass over the shards; returns regions and width."""
    first = next(shard.features for shard in shards if len(shard.features))
    shape = (first.shape[1], first.shape[2] if whitening is None else whitening.width)
    row_of = {name: _rows(part.pictures, len(fine)) for name, part in parts.items()}
    with ExitStack() as stack:
        files = {name: stack.enter_context(replaced_when_written(out / f"{name}_ims.npy")) for name in parts}
        for name, part in parts.items():
            header = {"descr": "<f2", "fortran_order": False, "shape": (len(part.pictures), *shape)}
            np.lib.format.write_array_header_1_0(files[name], header)
        start = 0
        for shard in track(shards, "writing features", total=len(shards), shown=shown):
            numbers = np.flatnonzero(shard.fine) + start
            start += len(shard.fine)
            if not len(numbers):
                continue
            features = shard.features
            if whitening is not None:
                features = whitening(features.astype(np.float32)).astype(np.float16)
            for name in parts:
                # Pictures of a split lie in the order of the index, so that every file only grows.
                files[name].write(np.ascontiguousarray(features[row_of[name][numbers] >= 0]).tobytes())
    return shape


def _rows(pictures: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The row of every picture in its split, -1 where it is not in it."""
    rows = np.full(count, -1, dtype=np.int64)
    rows[pictures] = np.arange(len(pictures))
    return rows


def write_captions(out: Path, name: str, part: Part, index: Index) -> None:
    """Write `{split}_pairs.parquet` and `{split}_caps.txt`, a row and a line for every pair."""
    import polars as pl

    rows = _rows(part.pictures, len(index.places))
    table = pl.DataFrame(
        {
            "pair_id": [caption.pair_id for caption in part.captions],
            "image_id": [index.image_ids[caption.picture] for caption in part.captions],
            "image_row": rows[[caption.picture for caption in part.captions]],
            "picture": [_picture_path(out, index, caption.picture) for caption in part.captions],
            "text": [caption.text for caption in part.captions],
            "source_row": [caption.place for caption in part.captions],
        },
        schema_overrides={"picture": pl.String},
    )
    with replaced_when_written(out / f"{name}_pairs.parquet") as file:
        table.write_parquet(file)
    with replaced_when_written(out / f"{name}_caps.txt") as file:
        file.write("".join(caption.text + "\n" for caption in part.captions).encode())


def _picture_path(out: Path, index: Index, number: int) -> str | None:
    """Relative to the data folder, so that both can be moved together; None for pictures inside tar files."""
    place = index.places[number]
    return None if place.size is not None else os.path.relpath(place.path, out)


def write_rejects(path: Path, rejects: Sequence[Reject]) -> None:
    """Write what was set aside and why, a row for every picture, caption or row of the source."""
    import polars as pl

    table = pl.DataFrame(
        {
            "what": [reject.what for reject in rejects],
            "picture": [reject.picture for reject in rejects],
            "row": [reject.place for reject in rejects],
            "reason": [reject.reason for reject in rejects],
            "detail": [reject.detail for reject in rejects],
            "pair_ids": [list(reject.pair_ids) for reject in rejects],
        },
        schema={
            **dict.fromkeys(("what", "picture", "row", "reason", "detail"), pl.String),
            "pair_ids": pl.List(pl.String),
        },
    )
    with replaced_when_written(path) as file:
        table.write_parquet(file)
