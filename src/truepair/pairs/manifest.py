"""Tables of pairs: what a parquet, csv or jsonl file says about each pair."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truepair.errors import DataError
from truepair.pairs.captions import read_text

if TYPE_CHECKING:
    import polars as pl

TABLE_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")
# What a column may be called; the first name is the one we write.
_COLUMNS = {
    "text": ("text", "caption"),
    "image_row": ("image_row",),
    "pair_id": ("pair_id", "id"),
    "image_id": ("image_id",),
    "picture": ("picture", "path"),
    "true_image_row": ("true_image_row",),
    "split": ("split",),
}


@dataclass(frozen=True, eq=False)
class Manifest:
    """The columns of a table of pairs, one entry a pair; None where the table has no such column."""

    path: Path
    text: list[str] | None = None
    image_row: NDArray[np.int64] | None = None
    pair_id: list[str] | None = None
    image_id: list[str] | None = None
    picture: list[str | None] | None = None
    true_image_row: NDArray[np.int64] | None = None
    split: list[str] | None = None

    def check_rows(self, images: int) -> None:
        """Refuse rows of images that do not exist."""
        for name, rows in (("image_row", self.image_row), ("true_image_row", self.true_image_row)):
            if rows is None:
                continue
            outside = np.flatnonzero((rows < 0) | (rows >= images))
            if len(outside):
                raise DataError(
                    self.path,
                    f"{name} is {rows[outside[0]]}, but the features have {images:,} rows, 0 to {images - 1:,}.",
                    "Correct the column, or point to the feature file that belongs to the table.",
                    row=f"row {outside[0]:,}",
                )

    def image_ids(self, image_of: NDArray[np.int64], otherwise: Sequence[str]) -> list[str]:
        """The id of every image; images without a pair keep the other name."""
        names = list(otherwise)
        if self.image_id is not None:
            self._spread(names, self.image_id, image_of, "image_id")
        return names

    def picture_paths(self, image_of: NDArray[np.int64], images: int) -> list[str] | None:
        """Where every image's picture lies, relative paths taken from the table's folder."""
        if self.picture is None:
            return None
        paths = [""] * images
        known = ["" if path is None else str(self.path.parent / path) for path in self.picture]
        self._spread(paths, known, image_of, "picture")
        return paths

    def _spread(
        self, names: list[str], given: Sequence[str], image_of: NDArray[np.int64], column: str
    ) -> None:
        seen: dict[int, str] = {}
        for pair, (image, name) in enumerate(zip(image_of.tolist(), given, strict=True)):
            if seen.setdefault(image, name) != name:
                raise DataError(
                    self.path,
                    f"image row {image} is called '{name}' here and '{seen[image]}' further up.",
                    f"Give all pairs of an image the same {column}.",
                    row=f"row {pair:,}",
                )
            names[image] = name


def read_manifest(path: Path, pairs: int | None = None, columns: Mapping[str, str] | None = None) -> Manifest:
    """Read a table of pairs. columns: the table's own names for our columns, where they differ."""
    table = read_table(path)
    if pairs is not None and len(table) != pairs:
        raise DataError(
            path,
            f"the table has {len(table):,} rows for {pairs:,} captions.",
            "It must have one row a caption, in the same order; write both again.",
        )
    own_names = columns or {}
    found: dict[str, Any] = {}
    for column, usual in _COLUMNS.items():
        names = (own_names[column],) if column in own_names else usual
        present = [name for name in names if name in table.columns]
        if column in own_names and not present:
            raise DataError(
                path,
                f"there is no column '{own_names[column]}'.",
                f"The table has: {', '.join(table.columns)}. Correct manifest.json.",
            )
        if present:
            found[column] = _column(path, table[present[0]], column)
    if not len(table):
        raise DataError(path, "the table has no rows.", "It needs one row a pair.")
    manifest = Manifest(path, **found)
    if manifest.pair_id is not None and len(set(manifest.pair_id)) < len(manifest.pair_id):
        raise DataError(path, "two pairs have the same pair_id.", "Pair ids must differ.")
    return manifest


def read_settings(folder: Path) -> dict[str, Any]:
    """What the manifest.json of a folder says; nothing where there is none."""
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    try:
        settings = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(
            path, f"this is not JSON: {error.msg}.", "Mend it.", row=f"line {error.lineno}"
        ) from None
    if not isinstance(settings, dict):
        raise DataError(path, "it must be a JSON object.", 'Write, for instance, {"features": "images.npy"}.')
    return settings


def read_table(path: Path) -> "pl.DataFrame":
    """A parquet, csv, tsv or jsonl file as it is; all columns of csv and tsv files are texts."""
    import polars as pl

    if path.suffix not in TABLE_SUFFIXES:
        raise DataError(path, "this is not a table of pairs.", f"Known are {', '.join(TABLE_SUFFIXES)}.")
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path, glob=False)
        content = io.BytesIO(read_text(path).encode())
        if path.suffix == ".jsonl":
            return pl.read_ndjson(content, infer_schema_length=None)
        separator = "\t" if path.suffix == ".tsv" else ","
        # Without guessed types: an id such as 007 has to stay what it is.
        return pl.read_csv(content, separator=separator, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            path,
            f"the table cannot be read ({str(error).splitlines()[0]}).",
            "Check the file, or write it again.",
        ) from None


def _column(path: Path, values: "pl.Series", column: str) -> Any:
    import polars as pl

    if values.dtype.is_nested() or values.dtype == pl.Boolean:
        raise DataError(path, f"{column} holds {values.dtype}.", "Its values must be plain texts or numbers.")
    if column in ("image_row", "true_image_row"):
        numbers = values.cast(pl.Int64, strict=False)
        if values.dtype.is_float():  # a cast would cut off the fraction
            numbers = numbers.set(numbers != values, None)
        if numbers.null_count():
            row = int(numbers.is_null().to_numpy().argmax())
            raise DataError(
                path,
                f"{column} is {values[row]!r}.",
                "It must be a row number of the features.",
                row=f"row {row:,}",
            )
        return numbers.to_numpy().astype(np.int64)
    texts = values.cast(pl.String)
    if column == "picture":
        return texts.to_list()
    if column == "text":
        return [text.strip() for text in texts.fill_null("").to_list()]
    if texts.null_count():
        row = int(texts.is_null().to_numpy().argmax())
        raise DataError(
            path, f"{column} is missing.", "Fill it in, or remove the column.", row=f"row {row:,}"
        )
    return texts.to_list()
