"""Pictures as they come from the web: whole ones of every kind, and files that no decoder likes."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def photo(seed: int, width: int = 48, height: int = 40) -> Image.Image:
    """A smooth picture that differs from all others."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A tiny file whose header promises a picture of any size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 4096)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def turned_jpeg(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(photo(1), "JPEG", exif=exif)


def broken_files() -> dict[str, tuple[bytes, str]]:
    """Files that have to be set aside, by name: content and reason."""
    jpeg, png = encoded(photo(2, 300, 300), "JPEG"), encoded(photo(3, 200, 200), "PNG")
    return {
        "zero.jpg": (b"", "empty file"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "cut.png": (png[: len(png) // 2], "truncated"),
        "start.jpg": (jpeg[:20], "damaged"),
        "start.gif": (encoded(photo(3), "GIF")[:100], "damaged"),
        "page.jpg": (b"<!DOCTYPE html><html><body>404</body></html>", "not a picture"),
        "noise.png": (np.random.default_rng(0).bytes(5000), "not a picture"),
        "text.jpg": (b"not found\n", "not a picture"),
        "bomb.png": (png_that_claims(60_000, 60_000), "too large"),
        "large.png": (png_that_claims(9_500, 9_500), "too large"),
        "script.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not a picture"),
        "drawing.png": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "not a picture"),
        "checksum.png": (png[:60] + bytes([png[60] ^ 255]) + png[61:], "damaged|truncated"),
    }


def odd_files() -> dict[str, tuple[bytes, str | None]]:
    """Files that have to be handled, by name: content and what is noted about them."""
    frames = [photo(seed).convert("P") for seed in range(3)]
    grey = np.asarray(photo(4).convert("L"), dtype=np.uint16) * 257
    clear = photo(5).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    animated, sixteen = "animated or several pages, the first was taken", "more than 8 bits, scaled down"
    return {
        "animated.gif": (encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), animated),
        "animated.webp": (
            encoded(photo(0), "WEBP", save_all=True, append_images=[photo(1)]),
            animated,
        ),
        "cmyk.jpg": (encoded(photo(6).convert("CMYK"), "JPEG"), "CMYK colours, converted"),
        "palette.png": (encoded(photo(7).convert("P"), "PNG", transparency=3), None),
        "sixteen.png": (encoded(Image.fromarray(grey), "PNG"), sixteen),
        "float.tiff": (encoded(Image.fromarray(grey.astype(np.float32) / 65535), "TIFF"), sixteen),
        "bit.png": (encoded(photo(8).convert("1"), "PNG"), None),
        "clear.png": (encoded(clear, "PNG"), None),
        "grey-clear.png": (encoded(clear.convert("LA"), "PNG"), None),
        "turned.jpg": (turned_jpeg(6), "turned as the EXIF data says"),
        "mirrored.jpg": (turned_jpeg(2), "turned as the EXIF data says"),
        "webp-as.jpg": (encoded(photo(9), "WEBP"), "the extension names another format"),
        "line.png": (encoded(photo(10, 3000, 1), "PNG"), None),
        "dot.png": (encoded(photo(11, 1, 1), "PNG"), None),
        "name with spaces, and commas.png": (encoded(photo(12), "PNG"), None),
        "bücher-\u4e66.png": (encoded(photo(13), "PNG"), None),
    }


@pytest.fixture
def pictures_in() -> Callable[[Path, int], list[str]]:
    """pictures_in(folder, n) writes n whole pictures and returns their names."""

    def write(folder: Path, count: int) -> list[str]:
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"photo-{seed}.png" for seed in range(count)]
        for seed, name in enumerate(names):
            (folder / name).write_bytes(encoded(photo(100 + seed), "PNG"))
        return names

    return write


@pytest.fixture(scope="session")
def broken() -> dict[str, tuple[bytes, str]]:
    return broken_files()


@pytest.fixture(scope="session")
def odd() -> dict[str, tuple[bytes, str | None]]:
    return odd_files()
