"""Tables of pictures and captions as people keep them: csv, tsv, jsonl, parquet; one problem never ends the reading."""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truepair.errors import DataError

TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".parquet")
PATH_COLUMNS = (
    *("path", "image_path", "picture", "picture_path", "filepath", "file_path", "file_name", "filename"),
    *("file", "image", "img", "image_file", "image_name"),
)
TEXT_COLUMNS = (
    "text",
    "caption",
    "captions",
    "texts",
    "title",
    "sentence",
    "sentences",
    "description",
    "alt_text",
)
LONGEST_CAPTION = 100  # lines; more of them in one cell means that a quotation mark was never closed


@dataclass(frozen=True)
class Problem:
    """Why a row or a picture is set aside. reason: a few words to count by. detail: what was found."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what, None where there is none."""

    path: str
    text: str
    split: str | None
    pair_id: str | None


@dataclass(frozen=True)
class Row:
    """One row of a table. number: counted from 0. place: for people. values: None where the row is broken."""

    number: int
    place: str
    values: dict[str, Any] | None
    problem: Problem | None = None


def read_rows(path: Path) -> tuple[list[str], Iterator[Row]]:
    """The names of the columns and the rows, whole or with their problem."""
    if path.suffix == ".parquet":
        return _parquet(path)
    content = _decoded(path)
    return _jsonl(path, content) if path.suffix == ".jsonl" else _delimited(path, content)


def find_columns(
    table: Path, names: list[str], path: str | None, text: str | None, split: str | None
) -> Columns:
    """The columns that were asked for, or that are called as such columns usually are."""

    def find(asked: str | None, usual: tuple[str, ...], what: str) -> str | None:
        if asked is not None:
            if asked in names:
                return asked
            raise DataError(table, f"there is no column '{asked}'.", f"The table has: {', '.join(names)}.")
        lower = {name.lower().strip(): name for name in reversed(names)}
        found = next((lower[name] for name in usual if name in lower), None)
        if found is None and what:
            raise DataError(
                table,
                f"no column is called as one that holds the {what} usually is; it has: {', '.join(names)[:300]}.",
                f"Name it: --{'path' if what == 'pictures' else 'text'}-column NAME.",
            )
        return found

    path_column, text_column = find(path, PATH_COLUMNS, "pictures"), find(text, TEXT_COLUMNS, "captions")
    assert path_column is not None
    assert text_column is not None
    return Columns(path_column, text_column, find(split, ("split",), ""), find(None, ("pair_id",), ""))


def usable_captions(value: Any) -> list[str | Problem]:
    """The captions of a cell, each on one line and in clean Unicode; a cell may hold a list of them."""
    if isinstance(value, list | tuple):
        return [caption for part in value for caption in usable_captions(part)] or [
            Problem("empty caption", "the list of captions is empty")
        ]
    if value is None or (isinstance(value, float) and value != value):
        return [Problem("empty caption", "there is no caption")]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        return [Problem("not a caption", f"a {type(value).__name__} stands where the caption should")]
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = value[max(0, error.start - 20) : error.start + 20].encode("utf-8", "replace").decode()
        return [Problem("caption is not UTF-8", f"near '{shown}'")]
    # Captions lie one on a line in the data folder, and control characters are never part of one.
    caption = " ".join(re.sub(r"[\x00-\x1f\x7f\ufeff]", " ", value).split())
    return [caption] if caption else [Problem("empty caption", "the caption has no characters")]


def _decoded(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(path, f"it cannot be read ({error.strerror}).", "Check the path.") from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(
            path,
            "this is UTF-16.",
            f"Convert it: iconv -f UTF-16 -t UTF-8 {path.name} > converted{path.suffix}",
        )
    # A single row in another encoding is set aside later: bytes that are not UTF-8 survive until then.
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    text = text.replace("\r", " " if "\n" in text else "\n")
    if not text.strip():
        raise DataError(
            path, "the table is empty.", "It needs a line with the names of the columns, then rows."
        )
    return text


def _jsonl(path: Path, content: str) -> tuple[list[str], Iterator[Row]]:
    rows: list[Row] = []
    for number, line in enumerate(line for line in content.split("\n") if line.strip()):
        place = f"row {number:,}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            rows.append(Row(number, place, None, Problem("row is not JSON", str(error))))
            continue
        whole = isinstance(values, dict)
        problem = None if whole else Problem("row is not JSON", "the line is no JSON object")
        rows.append(Row(number, place, values if whole else None, problem))
    names = dict.fromkeys(name for row in rows if row.values for name in row.values)
    return list(names), iter(rows)


def _delimited(path: Path, content: str) -> tuple[list[str], Iterator[Row]]:
    header = content.split("\n", 1)[0]
    separator = "\t" if path.suffix == ".tsv" else max(",\t;|", key=header.count)
    # Not str.splitlines: it would also cut at the Unicode line separators that captions from the web contain.
    lines = (line + "\n" for line in content.split("\n"))
    reader = csv.reader(lines, delimiter=separator)
    with _cells_of_any_length():
        names = [name.strip() for name in next(reader)]
    return names, _delimited_rows(path, reader, names)


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    """Python's limit on a cell holds for the whole process: others rely on it, so it comes back."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _delimited_rows(path: Path, reader: Any, names: list[str]) -> Iterator[Row]:
    number, line = 0, reader.line_num + 1
    for cells in _whole_rows(reader):
        place, span = f"line {line:,}", reader.line_num + 1 - line
        line = reader.line_num + 1
        if not cells or cells == [""]:
            continue
        if span > LONGEST_CAPTION:
            raise DataError(
                path,
                f"one cell goes over {span:,} lines.",
                "A quotation mark opens it and is never closed: close it, or double the mark if it is text.",
                row=place,
            )
        if len(cells) > len(names):
            found = f"{len(cells)} cells in {len(names)} columns; a caption with the separator needs quotation marks"
            yield Row(number, place, None, Problem("too many cells", found))
        else:
            yield Row(number, place, dict(zip(names, cells, strict=False)))
        number += 1


def _whole_rows(reader: Any) -> Iterator[list[str]]:
    while True:
        with _cells_of_any_length():
            cells = next(reader, None)
        if cells is None:
            return
        yield cells


def _parquet(path: Path) -> tuple[list[str], Iterator[Row]]:
    import polars as pl

    try:
        table = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise DataError(
            path, f"the table cannot be read ({first_line}).", "Check the file, or write it again."
        ) from None
    rows = (
        Row(number, f"row {number:,}", values) for number, values in enumerate(table.iter_rows(named=True))
    )
    return table.columns, rows
