"""Demo data that comes with the package: emoji drawings of three vendors with the names people gave them."""

import os
import shutil
import sys
import uuid
import zipfile
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from truepair.pairs.core import Pairs

VERSION = "1"  # of the bundle and of what is made from it: a new one never meets an old cache


def demo_source(folder: str | Path | None = None) -> Path:
    """The raw demo data, unpacked once: a folder with pictures and captions.tsv, as `truepair embed` takes it.

    folder: where to put it; by default a folder in the user's cache.
    """
    return _made(_root(folder) / "source", _unpack)


def demo_data(folder: str | Path | None = None) -> Path:
    """The demo data as a data folder with `patches` features, made once, in less than a minute."""
    source = demo_source(folder)
    return _made(_root(folder) / "patches", lambda out: _embed(source, out))


def load_demo(split: str = "train", folder: str | Path | None = None) -> Pairs:
    """One split of the demo data. train; dev and test are new drawings of trained things; unseen has new things."""
    from truepair.pairs.readers import load_pairs

    return load_pairs(demo_data(folder), split)


def _root(folder: str | Path | None) -> Path:
    if folder is not None:
        return Path(folder)
    cache = os.environ.get("TRUEPAIR_CACHE")
    if cache:
        return Path(cache) / f"demo-{VERSION}"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "truepair" / f"demo-{VERSION}"


def _made(target: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made in a temporary one first: whole or absent, even if several processes want it at once."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that relative paths inside stay right and the last step is a rename.
    temporary = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        make(temporary)
        try:
            temporary.rename(target)
        except OSError:
            if not target.exists():  # else another process was faster, with the same result
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _unpack(out: Path) -> None:
    bundle = files("truepair.pairs.demo")
    with as_file(bundle / "pictures.zip") as pictures, zipfile.ZipFile(pictures) as archive:
        archive.extractall(out)
    for name in ("captions.tsv", "LICENSES.md"):
        (out / name).write_bytes((bundle / name).read_bytes())


def _embed(source: Path, out: Path) -> None:
    from truepair.features.embed import embed_source

    embed_source(source, out, workers=1, shown=True)
