"""What lies at SOURCE: pictures, their captions, and what is wrong with either before a picture was opened."""

import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from truepair.errors import DataError
from truepair.features.pictures import Place
from truepair.features.tables import (
    TABLES,
    TEXT_COLUMNS,
    Columns,
    Problem,
    Row,
    find_columns,
    read_rows,
    usable_captions,
)

USUAL_TABLES = ("captions", "metadata", "pairs")
PICTURE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".jp2"),
    *(".ppm", ".pgm", ".tga", ".ico"),
)


@dataclass(frozen=True)
class Caption:
    """A caption that can be used, and the picture (its number in the index) that it belongs to."""

    pair_id: str
    picture: int
    text: str
    split: str | None
    place: str


@dataclass(frozen=True)
class Reject:
    """Something that was set aside. what: picture, caption or row. pair_ids: the pairs that are lost with it."""

    what: str
    picture: str | None
    place: str
    reason: str
    detail: str
    pair_ids: tuple[str, ...]


@dataclass
class Index:
    """Everything a source names, in its order; no picture has been opened. files: the tables or tar files."""

    files: list[Path]
    image_ids: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def picture(self, image_id: str, place: Place) -> int:
        """The number of a picture, the same for the same id."""
        number = self._numbers.setdefault(image_id, len(self.image_ids))
        if number == len(self.image_ids):
            self.image_ids.append(image_id)
            self.places.append(place)
        return number


@dataclass(frozen=True)
class Names:
    """What the user says about a table: its file, its columns."""

    captions: Path | None = None
    path_column: str | None = None
    text_column: str | None = None
    split_column: str | None = None


def read_source(source: Path, names: Names) -> Index:
    """A folder with a table, a table alone, a folder of tar files, or a tar file."""
    if not source.exists():
        raise DataError(source, "there is nothing at this path.", "Check the path.")
    if source.is_file() and source.suffix == ".tar":
        return read_tars([source])
    if source.is_file():
        return read_table(source, source.parent, names)
    if names.captions is not None:
        table = names.captions if names.captions.exists() else source / names.captions
        return read_table(table, source, names)
    tars = sorted(source.glob("*.tar"))
    return read_tars(tars) if tars else read_table(_table_in(source), source, names)


def _table_in(folder: Path) -> Path:
    tables = sorted(path for path in folder.iterdir() if path.suffix in TABLES and path.is_file())
    usual = [path for path in tables if path.stem in USUAL_TABLES]
    chosen = usual or tables
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise DataError(
            folder,
            f"which table has the captions? There are {', '.join(path.name for path in chosen[:8])}.",
            f"Name it: --captions {chosen[0].name}",
        )
    raise DataError(
        folder,
        "there is no table of captions and no tar file in this folder.",
        "Put a captions.csv (.tsv, .jsonl, .parquet) beside the pictures, with a column 'path' and a column 'text'.",
    )


def read_table(table: Path, folder: Path, names: Names) -> Index:
    """Paths of pictures are taken from the table's folder, or else from the source folder."""
    if table.suffix not in TABLES:
        raise DataError(
            table, "this is not a table or a tar file.", f"Known are {', '.join(TABLES)} and .tar."
        )
    column_names, rows = read_rows(table)
    columns = find_columns(table, column_names, names.path_column, names.text_column, names.split_column)
    index = Index([table])
    seen: set[str] = set()
    for row in rows:
        for pair_id in _add_row(index, row, columns, _folders(table, folder)):
            if pair_id in seen:
                raise DataError(
                    table,
                    f"pair_id '{pair_id}' stands there twice.",
                    "Pair ids must differ.",
                    row=row.place,
                )
            seen.add(pair_id)
    return index


def _folders(table: Path, folder: Path) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((table.parent, folder)))


def _add_row(index: Index, row: Row, columns: Columns, folders: tuple[Path, ...]) -> list[str]:
    """Add what one row says; returns the ids of its pairs."""
    if row.values is None:
        assert row.problem is not None
        index.rejects.append(
            Reject("row", None, row.place, row.problem.reason, row.problem.detail, (f"row-{row.number}",))
        )
        return []
    given = row.values.get(columns.pair_id) if columns.pair_id else None
    name = f"row-{row.number}" if given is None else str(given)
    path = row.values.get(columns.path)
    captions = usable_captions(row.values.get(columns.text))
    ids = [name] if len(captions) == 1 else [f"{name}.{k}" for k in range(len(captions))]
    problem = _path_problem(path)
    if problem is not None:
        shown = None if path is None else str(path).encode("utf-8", "replace").decode()
        index.rejects.append(Reject("picture", shown, row.place, problem.reason, problem.detail, tuple(ids)))
        return ids
    image_id = str(PurePosixPath(str(path).strip()))
    split = None
    if columns.split:
        cell = row.values.get(columns.split)
        split = "" if cell is None else str(cell).strip()
    for pair_id, caption in zip(ids, captions, strict=True):
        if isinstance(caption, Problem):
            index.rejects.append(
                Reject("caption", image_id, row.place, caption.reason, caption.detail, (pair_id,))
            )
        else:
            number = index.picture(image_id, _place(image_id, folders))
            index.captions.append(Caption(pair_id, number, caption, split, row.place))
    return ids


def _path_problem(path: Any) -> Problem | None:
    if not isinstance(path, str) or not path.strip():
        return Problem("no picture named", "the row has no path")
    if "://" in path[:12]:
        return Problem("not a file", "the row names a web address; download the picture first")
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return Problem("name is not UTF-8", "rename the file, and write the table as UTF-8")
    return None


def _place(image_id: str, folders: tuple[Path, ...]) -> Place:
    if len(folders) == 1:
        return Place(str(folders[0] / image_id))
    candidates = [folder / image_id for folder in folders]
    return Place(str(next((path for path in candidates if _exists(path)), candidates[0])))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, for instance; it is set aside when the picture is opened
        return False


def read_tars(tars: list[Path]) -> Index:
    """Tar files whose members share a name up to the first dot: a picture and a .txt or .json with its caption."""
    index = Index(tars)
    for tar in tars:
        _add_tar(index, tar)
    return index


def _add_tar(index: Index, tar: Path) -> None:
    samples: dict[str, dict[str, Any]] = {}
    try:
        # "r:" is a plain tar file: in a compressed one, no member could be reached without unpacking all before it.
        with tarfile.open(tar, "r:") as archive:
            for member in archive:
                folder, _, base = member.name.rpartition("/")
                if not member.isfile() or base.startswith("."):
                    continue
                stem, _, extension = base.partition(".")
                sample = samples.setdefault(f"{folder}/{stem}" if folder else stem, {})
                suffix = "." + extension.lower().rpartition(".")[2]
                if suffix in PICTURE_SUFFIXES:
                    sample["picture"] = (member.name, member.offset_data, member.size)
                elif suffix in (".txt", ".json", ".caption"):
                    content = archive.extractfile(member)
                    sample[suffix] = content.read() if content else b""
            damage = _damage_after(tar, archive.offset)
    except (tarfile.TarError, EOFError, OSError) as error:
        if not samples:
            raise DataError(
                tar,
                f"this is not a plain tar file ({error}).",
                "If it is compressed, unpack it first: gunzip.",
            ) from None
        damage = str(error)
    if damage:
        index.rejects.append(Reject("tar file", None, tar.name, "damaged tar file", damage, ()))
    for key, sample in samples.items():
        _add_sample(index, tar, key, sample)


def _damage_after(tar: Path, offset: int) -> str | None:
    """What is wrong where Python's reader stopped: at a damaged header it stops without a word."""
    with tar.open("rb") as file:
        file.seek(offset)
        block = file.read(512)
    if not block:
        return "the file ends without the mark of its end; it may have been cut"
    return "the header of a member is damaged; what follows is lost" if any(block) else None


def _add_sample(index: Index, tar: Path, key: str, sample: dict[str, Any]) -> None:
    pair_id, place = f"{tar.name}/{key}", f"{tar.name}: {key}"
    if "picture" not in sample:
        index.rejects.append(
            Reject("picture", None, place, "no picture named", "the sample has no picture", (pair_id,))
        )
        return
    name, offset, size = sample["picture"]
    image_id = f"{tar.name}/{name}"
    captions = usable_captions(_caption_of(sample))
    for k, caption in enumerate(captions):
        own_id = pair_id if len(captions) == 1 else f"{pair_id}.{k}"
        if isinstance(caption, Problem):
            index.rejects.append(
                Reject("caption", image_id, place, caption.reason, caption.detail, (own_id,))
            )
        else:
            number = index.picture(image_id, Place(str(tar), offset, size))
            index.captions.append(Caption(own_id, number, caption, None, place))


def _caption_of(sample: dict[str, Any]) -> Any:
    """The .txt, or else what the .json calls the caption."""
    text = sample.get(".txt", sample.get(".caption"))
    if text is not None:
        return text
    try:
        values = json.loads(sample.get(".json", b"{}"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return values
    lower = {str(name).lower(): value for name, value in values.items()}
    return next((lower[name] for name in TEXT_COLUMNS if name in lower), None)
