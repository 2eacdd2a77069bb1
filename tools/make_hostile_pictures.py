"""Make a folder of pictures as the web gives them: most are real, some are odd but whole, some are broken.

    python tools/make_hostile_pictures.py FOLDER --pictures 2000 --broken 60 --odd 60
    truepair embed FOLDER --out DATA        # names exactly the 60 broken ones in DATA/rejects.parquet
    truepair audit DATA --out AUDIT

The real pictures are those of the demo data. `broken.csv` beside the captions lists the broken files.
"""

import argparse
import csv
import io
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from truepair.pairs.demo import demo_source

# What is written for a name of a picture: its bytes, or a function that puts something else at the path.
Content = bytes | Callable[[Path], None]


def make(folder: Path, pictures: int, broken: int, odd: int, seed: int = 0) -> dict[str, str]:
    """Write the folder; returns what is wrong with each broken file, by name."""
    folder.mkdir(parents=True)
    captions = _demo_captions(pictures)
    rows, faults = [], {}
    names_of_kinds = [*_cycle("broken", sorted(BROKEN), broken), *_cycle("odd", sorted(ODD), odd)]
    kinds = dict(zip(random.Random(seed).sample(range(pictures), broken + odd), names_of_kinds, strict=True))
    (folder / "a folder").mkdir()
    for number, (source, text) in enumerate(captions):
        picture = Image.open(source).convert("RGBA")
        if number not in kinds:
            name = f"{number:05d}{source.suffix}"
            (folder / name).write_bytes(source.read_bytes())
        else:
            group, kind = kinds[number]
            name, content = (BROKEN if group == "broken" else ODD)[kind](picture, f"{number:05d}")
            if callable(content):
                content(folder / name)
            else:
                (folder / name).write_bytes(content)
            if group == "broken":
                faults[name] = kind
        rows.append((name, text))
    _write_csv(folder / "captions.csv", ("path", "text"), rows)
    _write_csv(folder / "broken.csv", ("path", "kind"), sorted(faults.items()))
    return faults


def _cycle(group: str, kinds: list[str], count: int) -> list[tuple[str, str]]:
    return [(group, kinds[place % len(kinds)]) for place in range(count)]


def _demo_captions(count: int) -> list[tuple[Path, str]]:
    """One caption each of so many demo pictures."""
    source = demo_source()
    with (source / "captions.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    first = {row["path"]: row["text"] for row in reversed(rows)}
    names = sorted(first)
    if count > len(names):
        raise SystemExit(f"there are {len(names):,} demo pictures, not {count:,}")
    return [(source / name, first[name]) for name in names[:count]]


def _write_csv(path: Path, columns: tuple[str, ...], rows: list[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    """The bytes of a picture in a format."""
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A small file whose header promises a picture of any size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 4096)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _on_white(picture: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def _jpeg(picture: Image.Image, **options: object) -> bytes:
    return encoded(_on_white(picture), "JPEG", **options)


def _flipped_bit(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


def _nothing(path: Path) -> None:
    """The table names it, and it is not there."""


def _big_bomb() -> bytes:
    """A whole picture of 225 million equal pixels in a few kilobytes."""
    return encoded(Image.new("1", (15_000, 15_000)), "PNG")


def _turned(picture: Image.Image, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return _jpeg(picture, exif=exif)


def _animated(picture: Image.Image, kind: str) -> bytes:
    frames = [_on_white(picture.rotate(turn)) for turn in (0, 90, 180)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:])


# Files that no extractor can describe: each has to be named in rejects.parquet.
BROKEN: dict[str, Callable[[Image.Image, str], tuple[str, Content]]] = {
    "absent": lambda picture, name: (f"{name}.png", _nothing),
    "bomb, header only": lambda picture, name: (f"{name}.png", png_that_claims(60_000, 60_000)),
    "bomb, whole": lambda picture, name: (f"{name}.png", _big_bomb()),
    "cut GIF": lambda picture, name: (f"{name}.gif", encoded(_on_white(picture), "GIF")[:200]),
    "cut JPEG": lambda picture, name: (f"{name}.jpg", _jpeg(picture)[:400]),
    "cut PNG": lambda picture, name: (f"{name}.png", encoded(picture, "PNG")[:300]),
    "cut WebP": lambda picture, name: (f"{name}.webp", encoded(_on_white(picture), "WEBP")[:100]),
    "damaged header": lambda picture, name: (f"{name}.png", _flipped_bit(encoded(picture, "PNG"), 20)),
    "first bytes alone": lambda picture, name: (f"{name}.jpg", _jpeg(picture)[:3]),
    "folder": lambda picture, name: (f"{name}.png", lambda path: path.mkdir()),
    "link to a folder": lambda picture, name: (f"{name}.png", lambda path: path.symlink_to("a folder")),
    "link to itself": lambda picture, name: (f"{name}.png", lambda path: path.symlink_to(path.name)),
    "link to nothing": lambda picture, name: (f"{name}.png", lambda path: path.symlink_to("gone.png")),
    "named pipe": lambda picture, name: (f"{name}.png", lambda path: os.mkfifo(path)),
    "name in Latin-1": lambda picture, name: (f"{name}-caf\udce9.png", encoded(picture, "PNG")),
    "PDF": lambda picture, name: (f"{name}.png", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"),
    "PostScript": lambda picture, name: (f"{name}.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    "random bytes": lambda picture, name: (f"{name}.jpg", random.Random(name).randbytes(5000)),
    "SVG": lambda picture, name: (f"{name}.png", b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
    "web page": lambda picture, name: (f"{name}.jpg", b"<!DOCTYPE html><html><body>404</body></html>"),
    "zero bytes": lambda picture, name: (f"{name}.jpg", b""),
}


def _grey(picture: Image.Image) -> np.ndarray:
    return np.asarray(_on_white(picture).convert("L"))


# Files that are unusual and whole: each has to be described.
ODD: dict[str, Callable[[Image.Image, str], tuple[str, Content]]] = {
    "16 bits": lambda p, name: (
        f"{name}.png",
        encoded(Image.fromarray(_grey(p).astype(np.uint16) * 257), "PNG"),
    ),
    "animated GIF": lambda p, name: (f"{name}.gif", _animated(p, "GIF")),
    "animated WebP": lambda p, name: (f"{name}.webp", _animated(p, "WEBP")),
    "CMYK": lambda p, name: (f"{name}.jpg", encoded(_on_white(p).convert("CMYK"), "JPEG")),
    "EXIF mirrored": lambda p, name: (f"{name}.jpg", _turned(p, 5)),
    "EXIF turned": lambda p, name: (f"{name}.jpg", _turned(p, 6)),
    "floating point": lambda p, name: (
        f"{name}.tiff",
        encoded(Image.fromarray(_grey(p).astype(np.float32) / 255), "TIFF"),
    ),
    "grey with transparency": lambda p, name: (f"{name}.png", encoded(p.convert("LA"), "PNG")),
    "line": lambda p, name: (f"{name}.png", encoded(p.resize((3000, 1)), "PNG")),
    "long side of 9,000": lambda p, name: (f"{name}.jpg", encoded(_on_white(p).resize((9000, 90)), "JPEG")),
    "name in Chinese": lambda p, name: (f"{name}-\u732b \u72ac.png", encoded(p, "PNG")),
    "name with quotes and commas": lambda p, name: (f'{name}, "a" & b.png', encoded(p, "PNG")),
    "one bit": lambda p, name: (f"{name}.png", encoded(_on_white(p).convert("1"), "PNG")),
    "palette with transparency": lambda p, name: (
        f"{name}.png",
        encoded(_on_white(p).convert("P"), "PNG", transparency=3),
    ),
    "pages": lambda p, name: (f"{name}.tiff", _animated(p, "TIFF")),
    "progressive": lambda p, name: (f"{name}.jpg", _jpeg(p, progressive=True)),
    "upper case": lambda p, name: (f"{name}.JPEG", _jpeg(p)),
    "wrong extension": lambda p, name: (f"{name}.jpg", encoded(_on_white(p), "WEBP")),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--broken", type=int, default=60)
    parser.add_argument("--odd", type=int, default=60)
    given = parser.parse_args()
    faults = make(given.folder, given.pictures, given.broken, given.odd)
    print(f"{given.pictures:,} pictures in {given.folder}, {len(faults)} of them broken")


if __name__ == "__main__":
    main()
