"""From raw pictures and captions to a data folder: what `truepair embed` does."""

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair import __version__
from truepair.errors import DataError, TruepairError
from truepair.features.describe import Shards
from truepair.features.extractors import Extractor, make_extractor
from truepair.features.patches import Whitening, fit_whitening
from truepair.features.sources import Caption, Index, Names, Reject, read_source
from truepair.features.threads import one_blas_thread
from truepair.features.writing import Part, write_captions, write_features, write_rejects
from truepair.files import replaced_when_written

SHARES = {"train": 0.9, "dev": 0.05, "test": 0.05}
UNFINISHED = ".embedding"
WHITENING = "whitening.npz"
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def embed_source(
    source: str | Path,
    out: str | Path,
    *,
    extractor: str = "patches",
    names: Names | None = None,
    split: str | None = None,
    shares: dict[str, float] | None = None,
    like: str | Path | None = None,
    workers: int | None = None,
    shown: bool = False,
) -> dict[str, Any]:
    """Describe the pictures of a source and write them with their captions as a data folder. Returns its manifest.

    split: put everything into this split, whatever the source says. shares: how pictures are divided by a hash of
    their id where neither it nor the source says so. like: an embedded data folder whose whitening is used again.
    An interrupted call goes on where it stopped, and ends with the same bytes.
    """
    source, out = Path(source), Path(out)
    _check_out(out)
    known = _whitening_of(Path(like)) if like is not None else None
    model = make_extractor(extractor)
    index = read_source(source, names or Names())
    if not index.captions:
        first = f" The first of {len(index.rejects):,}: {index.rejects[0].detail}." if index.rejects else ""
        raise DataError(source, f"no row has a picture and a caption.{first}", "Check the table.")
    shards = Shards(out / UNFINISHED, index.places)
    shards.start({"extractor": extractor, **model.settings()})
    # A large model fills all cores by itself; small hand-made features need processes.
    n_workers = workers or (_cores() if model.whitened else 1)
    shards.describe(model, n_workers, shown=shown)

    fine = _set_broken_pictures_aside(index, shards)
    parts, rule = _divide(index, fine, split, shares or SHARES)
    if not parts:
        raise DataError(
            source,
            "no picture could be used.",
            f"The first of {len(index.rejects):,} reasons: {index.rejects[0].reason}, {index.rejects[0].detail}.",
        )
    _remove_old(out)
    with one_blas_thread():
        whitening, fitted_on = _whitening(model, known, shards, parts, fine)
        if whitening is not None:
            whitening.save(out / WHITENING)
        shape = write_features(out, shards, parts, fine, whitening, shown=shown)
    for name, part in parts.items():
        write_captions(out, name, part, index)
    write_rejects(out / "rejects.parquet", index.rejects)
    manifest = {
        "made_by": f"truepair {__version__} embed",
        "extractor": extractor,
        "settings": model.settings(),
        "regions": shape[0],
        "width": shape[1],
        "whitening_fitted_on": fitted_on,
        "source": str(source),
        "sources": [{"path": str(path), "sha256": _sha256(path)} for path in index.files],
        "split_rule": rule,
        "splits": {
            name: {"pictures": len(part.pictures), "pairs": len(part.captions)}
            for name, part in parts.items()
        },
        "rejects": dict(sorted(Counter(reject.reason for reject in index.rejects).items())),
        "pairs_lost": sum(len(reject.pair_ids) for reject in index.rejects),
        "notes": dict(sorted(Counter(note for shard in _without_features(shards) for note in shard).items())),
    }
    with replaced_when_written(out / "manifest.json") as file:
        file.write(json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n")
    shutil.rmtree(shards.folder)
    return manifest


def _check_out(out: Path) -> None:
    """Only an empty folder, an interrupted run or an earlier result may be written to."""
    if out.is_file():
        raise DataError(out, "this is a file.", "Name a folder to write to.")
    if not out.exists() or not any(out.iterdir()) or (out / UNFINISHED).exists():
        return
    manifest = out / "manifest.json"
    if not manifest.exists() or '"made_by": "truepair' not in manifest.read_text("utf-8", "replace"):
        raise DataError(out, "this folder holds something else.", "Name a new or empty folder.")


def _remove_old(out: Path) -> None:
    """The files of an earlier result, of which the new one may not have all splits."""
    (out / "manifest.json").unlink(missing_ok=True)
    for pattern in ("*_ims.npy", "*_caps.txt", "*_pairs.parquet"):
        for path in out.glob(pattern):
            path.unlink()


def _whitening_of(like: Path) -> Whitening:
    path = like / WHITENING if like.is_dir() else like
    if not path.exists():
        raise DataError(
            path, "there is no whitening here.", "Name a folder that `truepair embed` has written."
        )
    return Whitening.load(path)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _set_broken_pictures_aside(index: Index, shards: Shards) -> NDArray[np.bool_]:
    """Which pictures can be used; the others go to the index's rejects."""
    pairs_of: dict[int, list[Caption]] = {}
    for caption in index.captions:
        pairs_of.setdefault(caption.picture, []).append(caption)
    fine: list[bool] = []
    for number in range(len(shards)):
        shard = shards.load(number, features=False)
        for good, reason, detail in zip(shard.fine, shard.reasons, shard.details, strict=True):
            if not good:
                captions = pairs_of[len(fine)]
                ids = tuple(caption.pair_id for caption in captions)
                name = index.image_ids[len(fine)]
                index.rejects.append(Reject("picture", name, captions[0].place, reason, detail, ids))
            fine.append(bool(good))
    return np.array(fine)


def _without_features(shards: Shards) -> Iterator[list[str]]:
    """The notes on every picture."""
    for number in range(len(shards)):
        yield from shards.load(number, features=False).notes


def _divide(
    index: Index, fine: NDArray[np.bool_], split: str | None, shares: dict[str, float]
) -> tuple[dict[str, Part], str]:
    """The splits that have pairs, in the order in which they appear, and in words how they came about."""
    if split is not None and not _SAFE_NAME.fullmatch(split):
        raise TruepairError(f"'{split}' cannot be the name of a split: letters, digits, - and _ only.")
    has_column = index.captions[0].split is not None
    captions: dict[str, list[Caption]] = {}
    for caption in index.captions:
        if not fine[caption.picture]:
            continue
        name = split or (caption.split if has_column else _share_of(index.image_ids[caption.picture], shares))
        if not name or not _SAFE_NAME.fullmatch(name):
            detail = f"the split is '{name}'" if name else "the row names no split"
            picture = index.image_ids[caption.picture]
            index.rejects.append(
                Reject("caption", picture, caption.place, "no split", detail, (caption.pair_id,))
            )
            continue
        captions.setdefault("val" if name == "validation" else name, []).append(caption)
    parts = {
        name: Part(np.unique([caption.picture for caption in of_split]), of_split)
        for name, of_split in captions.items()
    }
    by_hash = "by sha256 of the image id: " + ", ".join(f"{name} {share:g}" for name, share in shares.items())
    return parts, f"all in {split}" if split else "as the source says" if has_column else by_hash


def _share_of(image_id: str, shares: dict[str, float]) -> str:
    """The split of a picture by its id alone: it stays when other pictures come or go."""
    place = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") / 2**64
    borders = np.cumsum([0.0, *shares.values()])
    for name, (low, high) in zip(shares, pairwise(borders), strict=True):
        if low <= place < high:
            return name
    return list(shares)[-1]


def _whitening(
    model: Extractor, known: Whitening | None, shards: Shards, parts: dict[str, Part], fine: NDArray[np.bool_]
) -> tuple[Whitening | None, str | None]:
    """The whitening and what it was fitted on; None for extractors that need none."""
    if not model.whitened:
        return None, None
    if known is not None:
        return known, "another data folder"
    name = "train" if "train" in parts else "all splits"
    wanted = np.zeros(len(fine), dtype=np.bool_)
    for split, part in parts.items():
        if name in (split, "all splits"):
            wanted[part.pictures] = True
    return fit_whitening(lambda: _chosen(shards, fine, wanted)), name


def _chosen(
    shards: Shards, fine: NDArray[np.bool_], wanted: NDArray[np.bool_]
) -> Iterator[NDArray[np.float32]]:
    start = 0
    for shard in shards:
        rows = slice(start, start := start + len(shard.fine))
        features = shard.features[wanted[rows][fine[rows]]]
        if len(features):
            yield features.astype(np.float32)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
