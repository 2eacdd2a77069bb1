"""Writing a chosen part of a data set in the layout it came in. Feature files are linked, not copied."""

import json
import math
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from truepair import __version__
from truepair.errors import DataError
from truepair.files import replaced_when_written
from truepair.pairs.core import Pairs
from truepair.pairs.manifest import TABLE_SUFFIXES, read_settings, read_table

MADE_BY = f"truepair {__version__} audit"
# Everything that a split of either folder layout may consist of, behind the split's name.
_PRECOMPUTED = ("_ims.npy", "_caps.txt", "_caps.tsv", "_pairs.parquet", "_ids.txt", "_region_counts.npy")
_EMBEDDINGS = ("images.npy", "texts.npy", "texts.txt", "pairs.parquet")
_OTHER_FILES = ("manifest.json", *(f"pairs{suffix}" for suffix in TABLE_SUFFIXES))
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, eq=False)
class Selection:
    """Pairs to be written. rows: their rows in the data, in order. image_of: the image row each is to have."""

    rows: NDArray[np.int64]
    image_of: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


def write_data(folder: str | Path, pairs: Pairs, chosen: Selection) -> Path:
    """Write a data folder that `load_pairs` reads, with the chosen pairs in place of their split.

    pairs: the split as it was loaded. The other splits of its source come along as they are. Feature files get a
    second name (hard link, else symbolic link, else copy). An existing folder is written over if it was made here.
    """
    folder = Path(folder)
    _prepare(folder, pairs)
    settings = _WRITERS[pairs.provenance.layout](folder, pairs, chosen)
    changed = int((chosen.image_of != pairs.image_of[chosen.rows]).sum())
    about = {
        "made_by": MADE_BY,
        "from": [{"path": source.path, "sha256": source.sha256} for source in pairs.provenance.sources],
        "split": pairs.split,
        "pairs": len(chosen),
        "left_out": len(pairs) - len(chosen),
        "rematched": changed,
    }
    with replaced_when_written(folder / "manifest.json") as file:
        file.write(json.dumps({**settings, **about}, indent=2, ensure_ascii=False).encode() + b"\n")
    (folder / _UNFINISHED).unlink()
    return folder


def pairs_table(folder: Path, pairs: Pairs, chosen: Selection) -> pl.DataFrame:
    """One row a chosen pair with its ids, its image and its text; paths of pictures start at the folder."""
    steps = _rows_in_file(pairs)
    columns: dict[str, Any] = {
        "pair_id": [pairs.ids[row] for row in chosen.rows],
        "image_id": [pairs.image_ids[image] for image in chosen.image_of],
        "image_row": chosen.image_of * steps,
    }
    if pairs.true_image_of is not None:
        columns["true_image_row"] = pairs.true_image_of[chosen.rows] * steps
    if pairs.picture_paths is not None:
        columns["picture"] = [_relative(pairs.picture_paths[image], folder) for image in chosen.image_of]
    if len(pairs.texts):
        columns["text"] = [pairs.texts[row] for row in chosen.rows]
    return pl.DataFrame(columns, schema_overrides={"picture": pl.String} if "picture" in columns else None)


def write_parquet(path: Path, table: pl.DataFrame) -> None:
    """Write a table so that it is whole or not there."""
    with replaced_when_written(path) as file:
        table.write_parquet(file)


def write_captions(path: Path, texts: Sequence[str]) -> None:
    """One caption a line; a line feed inside a caption becomes a space."""
    with replaced_when_written(path) as file:
        for text in texts:
            file.write(text.replace("\r\n", " ").replace("\n", " ").encode() + b"\n")


def link(source: Path, target: Path) -> None:
    """Give a file a second name: a hard link, where that is impossible a symbolic link, and at last a copy."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    source = source.resolve()
    try:
        temporary.hardlink_to(source)
    except OSError:
        try:
            temporary.symlink_to(source)
        except OSError:
            shutil.copyfile(source, temporary)
    # Renaming one name of a file to another of the same file would do nothing and leave both.
    target.unlink(missing_ok=True)
    temporary.replace(target)


def _write_precomputed(folder: Path, pairs: Pairs, chosen: Selection) -> dict[str, Any]:
    features = Path(pairs.provenance.sources[0].path)
    source, name = features.parent, pairs.split
    _bring_other_splits(source, folder, _PRECOMPUTED, own=[f"{name}{part}" for part in _PRECOMPUTED])
    link(features, folder / features.name)
    counts = source / f"{name}_region_counts.npy"
    if counts.exists():
        link(counts, folder / counts.name)
    write_captions(folder / f"{name}_caps.txt", [pairs.texts[row] for row in chosen.rows])
    write_parquet(folder / f"{name}_pairs.parquet", pairs_table(folder, pairs, chosen))
    return {}


def _write_embeddings(folder: Path, pairs: Pairs, chosen: Selection) -> dict[str, Any]:
    images = Path(pairs.provenance.sources[0].path)
    prefix = images.name.removesuffix(_EMBEDDINGS[0])
    _bring_other_splits(images.parent, folder, _EMBEDDINGS, own=[f"{prefix}{part}" for part in _EMBEDDINGS])
    link(images, folder / images.name)
    assert pairs.text_vectors is not None
    with replaced_when_written(folder / f"{prefix}texts.npy") as file:
        np.save(file, pairs.text_vectors[chosen.rows])
    if len(pairs.texts):
        write_captions(folder / f"{prefix}texts.txt", [pairs.texts[row] for row in chosen.rows])
    write_parquet(folder / f"{prefix}pairs.parquet", pairs_table(folder, pairs, chosen))
    return {}


def _write_table(folder: Path, pairs: Pairs, chosen: Selection) -> dict[str, Any]:
    """The table as it was, all its columns, without the rows left out; other splits' rows stay."""
    path, features = (Path(source.path) for source in pairs.provenance.sources)
    names = dict(read_settings(path.parent).get("columns") or {})
    table = read_table(path)

    def column(*usual: str) -> str | None:
        own = names.get(usual[0])
        return own or next((name for name in usual if name in table.columns), None)

    split, image_row = column("split"), column("image_row")
    assert image_row is not None  # the reader has read it
    rows = np.arange(len(table))
    splits = ["train"] * len(table) if split is None else table[split].cast(pl.String).to_list()
    id_column = column("pair_id", "id")
    if id_column is None:  # ids by row would change with the rows
        id_column = "pair_id"
        table = table.with_columns(
            pl.Series(id_column, [f"{s}-{r}" for s, r in zip(splits, rows, strict=True)])
        )
    row_of = {name: row for row, name in enumerate(table[id_column].cast(pl.String).to_list())}
    own_rows = np.array([row_of[pairs.ids[row]] for row in chosen.rows], dtype=np.int64)

    image_of = table[image_row].cast(pl.Int64).to_numpy().copy()
    known_truth = column("true_image_row")
    truth = image_of.copy() if known_truth is None else table[known_truth].cast(pl.Int64).to_numpy().copy()
    image_of[own_rows] = chosen.image_of
    table = table.with_columns(pl.Series(image_row, image_of).cast(table[image_row].dtype))
    if pairs.true_image_of is not None:
        truth[own_rows] = pairs.true_image_of[chosen.rows]
        table = table.with_columns(pl.Series(known_truth or "true_image_row", truth))
    if (image_id := column("image_id")) is not None:
        ids = [pairs.image_ids[image] for image in image_of]
        table = table.with_columns(pl.Series(image_id, ids).cast(table[image_id].dtype))
    if (picture := column("picture", "path")) is not None and pairs.picture_paths is not None:
        pictures = [_relative(pairs.picture_paths[image], folder) for image in image_of]
        table = table.with_columns(pl.Series(picture, pictures, dtype=pl.String))

    kept = np.array([name != pairs.split for name in splits], dtype=np.bool_)
    kept[own_rows] = True
    link(features, folder / "images.npy")
    _write_like(folder / f"pairs{path.suffix}", table.filter(pl.Series(kept)))
    return {"features": "images.npy", **({"columns": names} if names else {})}


_WRITERS = {"precomputed": _write_precomputed, "embeddings": _write_embeddings, "table": _write_table}


def _write_like(path: Path, table: pl.DataFrame) -> None:
    with replaced_when_written(path) as file:
        if path.suffix == ".parquet":
            table.write_parquet(file)
        elif path.suffix == ".jsonl":
            table.write_ndjson(file)
        else:
            table.write_csv(file, separator="\t" if path.suffix == ".tsv" else ",")


def _bring_other_splits(source: Path, folder: Path, parts: Sequence[str], own: Sequence[str]) -> None:
    for path in sorted(source.iterdir()):
        if path.name in own or path.name.startswith(".") or not path.name.endswith(tuple(parts)):
            continue
        if path.suffix == ".parquet":
            table = pl.read_parquet(path, glob=False)
            if "picture" in table.columns:  # relative paths start at the folder, which is another one now
                pictures = [
                    picture and _relative(str(source / picture), folder) for picture in table["picture"]
                ]
                table = table.with_columns(pl.Series("picture", pictures, dtype=pl.String))
            write_parquet(folder / path.name, table)
        else:
            link(path, folder / path.name)


def _rows_in_file(pairs: Pairs) -> int:
    """How many rows of the feature file an image stands for: some files repeat it for each of its captions."""
    images = pairs.images
    return max(1, images.strides[0] // (images.itemsize * math.prod(images.shape[1:])))


def _relative(picture: str, folder: Path) -> str | None:
    return os.path.relpath(picture, folder) if picture else None


def _prepare(folder: Path, pairs: Pairs) -> None:
    """Make the folder, or remove what an earlier call wrote there; anything else in it is left alone or refused."""
    if any(Path(source.path).resolve().parent == folder.resolve() for source in pairs.provenance.sources):
        raise DataError(folder, "the data itself lies in this folder.", "Name a new or empty folder.")
    marker, manifest = folder / _UNFINISHED, folder / "manifest.json"
    if folder.is_file():
        raise DataError(folder, "this is a file.", "Name a folder to write to.")
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        made_by = read_settings(folder).get("made_by", "") if manifest.exists() else ""
        if not (str(made_by).startswith("truepair") and str(made_by).endswith("audit")):
            raise DataError(folder, "this folder holds something else.", "Name a new or empty folder.")
    folder.mkdir(parents=True, exist_ok=True)
    marker.touch()
    for path in folder.iterdir():
        if path.name.endswith((*_PRECOMPUTED, *_EMBEDDINGS)) or path.name in _OTHER_FILES:
            path.unlink()
