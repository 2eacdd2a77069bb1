"""Caption files: one caption a line (.txt), or an id and a caption in two columns (.tsv, as CC152K has them)."""

import csv
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from truepair.errors import DataError


@dataclass(frozen=True)
class Captions:
    """The captions of one file in its order, with the line each starts on and, in .tsv files, the ids."""

    path: Path
    texts: list[str]
    lines: Sequence[int]
    ids: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def check_words(self) -> None:
        """Refuse captions that are empty."""
        for text, line in zip(self.texts, self.lines, strict=True):
            if not text:
                raise DataError(
                    self.path,
                    "the caption is empty.",
                    "Every caption needs at least one word; remove the line together with its features, "
                    "or pass --skip-empty to set such pairs aside.",
                    row=f"line {line:,}",
                )


def read_captions(path: str | Path) -> Captions:
    """Read a caption file, stripped of outer white space. Only line feeds end a line, as in the published codes."""
    path = Path(path)
    captions = _read_columns(path) if path.suffix == ".tsv" else _read_lines(path)
    if not len(captions):
        raise DataError(
            path, "there are no captions in this file.", "Write one caption a line.", row="line 1"
        )
    return captions


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark, and with plain line feeds."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(path, f"it cannot be read ({error.strerror}).", "Check the path.") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        encoding = "UTF-16" if wide else "Latin-1"
        raise DataError(
            path,
            f"this is not UTF-8 (byte 0x{content[error.start]:02x}); it looks like {encoding}.",
            f"Convert the file: iconv -f {encoding} -t UTF-8 {path.name} > converted, and use the result.",
            row=f"line {line:,}",
        ) from None
    return text.replace("\r\n", "\n")


def _read_lines(path: Path) -> Captions:
    # Not str.splitlines: it would also cut at the Unicode line separators that captions from the web contain.
    texts = read_text(path).split("\n")
    if not texts[-1]:
        texts.pop()
    return Captions(path, [text.strip() for text in texts], range(1, len(texts) + 1))


def _read_columns(path: Path) -> Captions:
    content = read_text(path)
    rows = csv.reader(io.StringIO(content, newline="\n"), delimiter="\t")
    ids: list[str] = []
    texts: list[str] = []
    lines: list[int] = []
    line = 1
    try:
        for row in rows:
            if len(row) == 1 and row[0].strip():
                raise DataError(
                    path,
                    "there is no tab between an id and a caption.",
                    "Each line needs an id, a tab and a caption.",
                    row=f"line {line:,}",
                )
            ids.append(row[0].strip() if row else "")
            texts.append(row[1].strip() if len(row) > 1 else "")
            lines.append(line)
            line = rows.line_num + 1
    except csv.Error as error:
        raise _unreadable(path, line, error) from None
    _check_last_quote(path, content, lines[-1] if lines else 1)
    return Captions(path, texts, lines, ids)


def _check_last_quote(path: Path, content: str, line: int) -> None:
    # A quotation mark that is never closed makes one caption, the last, of all that follows.
    last = itertools.islice(io.StringIO(content, newline="\n"), line - 1, None)
    try:
        list(csv.reader(last, delimiter="\t", strict=True))
    except csv.Error as error:
        if "end of data" in str(error):
            raise _unreadable(path, line, error) from None


def _unreadable(path: Path, line: int, error: csv.Error) -> DataError:
    return DataError(
        path,
        f"the columns cannot be read ({error}).",
        "Look for a quotation mark that opens a caption and is never closed.",
        row=f"line {line:,}",
    )
