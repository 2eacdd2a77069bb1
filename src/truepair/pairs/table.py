"""A table of pairs (parquet, csv, tsv or jsonl) whose rows point to rows of a feature file."""

from pathlib import Path

import numpy as np

from truepair.errors import DataError
from truepair.pairs.core import Pairs, Provenance, Source
from truepair.pairs.features import open_features
from truepair.pairs.layouts import choose_split, image_ids, in_usual_order, pair_ids
from truepair.pairs.manifest import TABLE_SUFFIXES, Manifest, read_manifest, read_settings


def table_in(folder: Path) -> Path | None:
    """The table called pairs.parquet, pairs.csv, ... in a folder."""
    present = [folder / f"pairs{suffix}" for suffix in TABLE_SUFFIXES if (folder / f"pairs{suffix}").exists()]
    if len(present) > 1:
        raise DataError(
            folder,
            f"{present[0].name} and {present[1].name} both exist.",
            "Name one of them instead of the folder.",
        )
    return present[0] if present else None


def splits_of(path: Path) -> list[str]:
    """The values of the column `split`; a table without one is all `train`."""
    return _splits(_read(path))


def read(path: Path, split: str, *, skip_empty: bool = False, features: Path | None = None) -> Pairs:
    """Read one split. With skip_empty, empty texts are let through and stay in place."""
    table = _read(path)
    name = choose_split(path, split, _splits(table))
    if table.text is None or table.image_row is None:
        missing = "text" if table.text is None else "image_row"
        raise DataError(
            path,
            f"there is no column '{missing}'.",
            'Add it, or name it in a manifest.json beside the table: {"columns": {"'
            + missing
            + '": "its name"}}.',
        )
    if not skip_empty and "" in table.text:
        raise DataError(
            path,
            "the text is empty.",
            "Every text needs at least one word; remove the row, or pass --skip-empty to set such pairs aside.",
            row=f"row {table.text.index(''):,}",
        )
    features_path = features or _features_of(path)
    images = open_features(features_path)
    table.check_rows(len(images))
    rows = (
        range(len(table.text))
        if table.split is None
        else [row for row, value in enumerate(table.split) if value == name]
    )
    index = np.asarray(rows, dtype=np.int64)
    return Pairs(
        images=images,
        texts=[table.text[row] for row in rows],
        image_of=table.image_row[index],
        ids=[table.pair_id[row] for row in rows] if table.pair_id is not None else pair_ids(name, rows),
        image_ids=table.image_ids(table.image_row, image_ids("all", len(images))),
        split=name,
        provenance=Provenance("table", (Source(str(path)), Source(str(features_path)))),
        true_image_of=None if table.true_image_row is None else table.true_image_row[index],
        picture_paths=table.picture_paths(table.image_row, len(images)),
    )


def _read(path: Path) -> Manifest:
    return read_manifest(path, columns=read_settings(path.parent).get("columns"))


def _splits(table: Manifest) -> list[str]:
    return ["train"] if table.split is None else in_usual_order(list(set(table.split)))


def _features_of(path: Path) -> Path:
    """The feature file: named in manifest.json, or called like the table, or images.npy."""
    named = read_settings(path.parent).get("features")
    if named is not None:
        return path.parent / str(named)
    candidates = [path.with_name(f"{path.stem}_ims.npy"), path.with_name("images.npy")]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise DataError(
        path,
        f"its features are not found: there is neither {candidates[0].name} nor {candidates[1].name}.",
        'Name the file in a manifest.json beside the table: {"features": "file.npy"}.',
    )
