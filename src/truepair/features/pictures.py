"""Opening pictures that nobody has checked: everything that can be shown is turned into RGB, the rest is refused."""

import io
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

Image.init()  # else Pillow does not know its rarer formats yet
# Formats that Pillow decodes by itself. Others (EPS, PDF, ...) would start outside programs.
_HARMLESS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "TGA", "ICO", "MPO", "JPEG2000", "AVIF")
FORMATS = tuple(name for name in _HARMLESS if name in Image.OPEN)
MAX_PIXELS = 89_478_485  # Pillow's own limit against decompression bombs
MOST_SIDE = 2048  # no extractor needs more; what is opened is scaled down to it, so that memory stays bounded
MAX_BYTES = 512 * 2**20
_STARTS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG": "PNG",
    b"GIF8": "GIF",
    b"RIFF": "WebP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
_EXTENSIONS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP", ".gif": "GIF", ".bmp": "BMP"}


class PictureError(Exception):
    """A picture that cannot be used. reason: one of a few words to count by. detail: what exactly was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Place:
    """Where a picture's bytes lie: a file, or a stretch of a tar file (offset and size)."""

    path: str
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """The bytes, or a PictureError."""
        try:
            # Opening a named pipe would wait for ever: look before.
            status = Path(self.path).stat()
            if not stat.S_ISREG(status.st_mode):
                kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise PictureError("not a file", f"the path is {kind}")
            size = status.st_size if self.size is None else self.size
            if size == 0:
                raise PictureError("empty file", "the file has no bytes")
            if size > MAX_BYTES:
                raise PictureError(
                    "too large", f"the file has {size:,} bytes, at most {MAX_BYTES:,} are read"
                )
            with Path(self.path).open("rb") as file:
                file.seek(self.offset)
                return file.read(size)
        except FileNotFoundError:
            raise PictureError("missing file", "there is nothing at this path") from None
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise PictureError("unreadable file", reason) from None


def open_picture(
    data: bytes, name: str = "", target: int | None = None
) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture as RGB on white, the first frame of an animation, turned as its EXIF data says; and what was odd.

    target: the side that the picture will be scaled to; JPEG files much larger are decoded smaller, which is faster.
    """
    notes: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged EXIF data and the like
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = _opened(data, name, target, notes)
        return picture, tuple(notes)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise _unidentified(data) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError("too large", f"at most {MAX_PIXELS:,} pixels are decoded: {error}") from None
    except Exception as error:
        # Decoders of damaged files raise almost anything (OSError, SyntaxError, struct.error, IndexError, ...), and
        # one picture must never end a run over millions: the error becomes the reason it is set aside for.
        reason = "truncated" if "truncated" in str(error).lower() else "damaged"
        raise PictureError(reason, f"{type(error).__name__}: {error}") from None


def _opened(data: bytes, name: str, target: int | None, notes: list[str]) -> Image.Image:
    picture = Image.open(io.BytesIO(data), formats=FORMATS)
    width, height = picture.size
    if width * height > MAX_PIXELS:
        found = f"{width:,} x {height:,} pixels, at most {MAX_PIXELS:,} are decoded"
        raise PictureError("too large", found)
    expected = _EXTENSIONS.get(Path(name).suffix.lower())
    if expected and picture.format not in (expected, "MPO"):
        notes.append("the extension names another format")
    if getattr(picture, "n_frames", 1) > 1 and picture.format != "MPO":
        notes.append("animated or several pages, the first was taken")
    if target is not None:
        picture.draft("RGB", (2 * target, 2 * target))
    picture.load()
    upright = _as_rgb(_upright(picture, notes), notes)
    if max(upright.size) > MOST_SIDE:
        upright.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.BILINEAR)
    return upright


def _upright(picture: Image.Image, notes: list[str]) -> Image.Image:
    try:
        orientation = picture.getexif().get(0x0112, 1)
        if orientation in (1, None):
            return picture
        turned = ImageOps.exif_transpose(picture)
    except (
        Exception
    ):  # broken EXIF data raises as freely as broken pictures do, and the picture itself is fine
        notes.append("EXIF data cannot be read")
        return picture
    notes.append("turned as the EXIF data says")
    return turned


def _as_rgb(picture: Image.Image, notes: list[str]) -> Image.Image:
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode in ("I", "F") or picture.mode.startswith("I;"):
        notes.append("more than 8 bits, scaled down")
        known = 1 / 257 if picture.mode.startswith("I;16") else None
        return _from_numbers(np.asarray(picture, dtype=np.float64), known).convert("RGB")
    if picture.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        notes.append(f"{picture.mode} colours, converted")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture).convert("RGB")
    return picture.convert("RGB")


def _from_numbers(values: NDArray[np.float64], scale: float | None) -> Image.Image:
    """A grey picture of any numbers. Without a known scale, [0, 1], 8 and 16 bits keep theirs, others are stretched."""
    values = np.nan_to_num(values, posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 65535:
        values, high = (values - low) / (high - low or 1), 1.0
    if scale is None:
        scale = 255 if high <= 1 else 1 if high <= 255 else 1 / 257
    return Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))


def _unidentified(data: bytes) -> PictureError:
    """Why no decoder took the file: it is no picture, or one whose header is broken."""
    kind = next((kind for start, kind in _STARTS.items() if data.startswith(start)), None)
    if kind is not None:
        return PictureError("damaged", f"it begins as a {kind} file does, and its header is cut or broken")
    return PictureError("not a picture", _first_bytes(data))


def _first_bytes(data: bytes) -> str:
    start = data[:64].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "the file is a web page"
    if start.startswith((b"<svg", b"<?xml")):
        return "the file is SVG or XML; draw it as PNG first"
    if start.startswith((b"%pdf", b"%!ps")):
        return "the file is a PDF or PostScript document"
    return f"no known format, it begins with {data[:8].hex(' ')}"
