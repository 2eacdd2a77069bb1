"""Describing many pictures: in parallel, shard by shard, and on from where it was interrupted."""

import hashlib
import json
import multiprocessing
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair.errors import TruepairError
from truepair.features.extractors import Extractor, make_extractor
from truepair.features.pictures import PictureError, Place, open_picture
from truepair.features.threads import one_blas_thread
from truepair.files import replaced_when_written
from truepair.progress import track

SHARD = 256  # pictures; what an interruption may cost
BATCH = 16  # pictures that are open at once

_extractor: Extractor  # of a worker process


@dataclass(frozen=True, eq=False)
class Shard:
    """What became of the pictures of one shard.

    features: those that could be used, in order, pictures x regions x width, float16. fine: which ones these are.
    reasons, details: of the others, "" where fine. notes: what was odd but handled, a list of phrases for each.
    """

    features: NDArray[np.float16]
    fine: NDArray[np.bool_]
    reasons: list[str]
    details: list[str]
    notes: list[list[str]]


class Shards:
    """The shards of a run in its folder of unfinished work."""

    def __init__(self, folder: Path, places: Sequence[Place]) -> None:
        self.folder = folder
        self.places = places

    def __len__(self) -> int:
        return -(-len(self.places) // SHARD)

    def path(self, number: int) -> Path:
        """The file of a shard; it is whole if it exists."""
        return self.folder / f"{number:06d}.npz"

    def load(self, number: int, *, features: bool = True) -> Shard:
        """Read a shard, perhaps without its features, which are most of it."""
        with np.load(self.path(number), allow_pickle=False) as arrays:
            rest = json.loads(str(arrays["rest"]))
            empty = np.zeros((0, 0, 0), dtype=np.float16)
            return Shard(arrays["features"] if features else empty, arrays["fine"], **rest)

    def __iter__(self) -> Iterator[Shard]:
        return (self.load(number) for number in range(len(self)))

    def start(self, settings: dict[str, Any]) -> None:
        """Keep what an interrupted run of the same work has left; throw away what another one has."""
        stamps = [_stamp(place) for place in self.places]
        plan = hashlib.sha256(json.dumps([settings, SHARD, stamps]).encode()).hexdigest()
        note = self.folder / "plan.txt"
        if note.exists() and note.read_text() == plan:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with replaced_when_written(note) as file:
            file.write(plan.encode())

    def describe(self, extractor: Extractor, workers: int, *, shown: bool) -> None:
        """Write all shards that are not there yet."""
        missing = [number for number in range(len(self)) if not self.path(number).exists()]
        label = f"pictures through {extractor.name}"
        if workers == 1 or len(missing) <= 1:
            for number in track(missing, label, shown=shown):
                _write_shard(extractor, self._places_of(number), self.path(number))
            return
        # Fork would copy the locks of running threads; spawned processes start clean on every system.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            min(workers, len(missing)), context, _start_worker, (extractor.name,)
        ) as pool:
            work = [pool.submit(_work, self._places_of(number), self.path(number)) for number in missing]
            try:
                for done in track(as_completed(work), label, total=len(work), shown=shown):
                    done.result()
            except BrokenProcessPool:
                raise TruepairError(
                    "a worker process was ended from outside, perhaps for lack of memory. Run the same command again "
                    "with --workers 1: it goes on where this one stopped."
                ) from None
            finally:
                pool.shutdown(cancel_futures=True)

    def _places_of(self, number: int) -> Sequence[Place]:
        return self.places[number * SHARD : (number + 1) * SHARD]


def _stamp(place: Place) -> list[Any]:
    try:
        status = Path(place.path).stat()
    except (OSError, ValueError):
        return [place.path]
    return [place.path, place.offset, place.size, status.st_size, status.st_mtime_ns]


def _start_worker(extractor: str) -> None:
    global _extractor
    _extractor = make_extractor(extractor)
    if _extractor.whitened:
        one_blas_thread()  # there is a process a core already
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A main process that was killed cannot tell its workers: they watch it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(places: Sequence[Place], target: Path) -> None:
    _write_shard(_extractor, places, target)


def _write_shard(extractor: Extractor, places: Sequence[Place], target: Path) -> None:
    shard = describe_shard(extractor, places)
    rest = json.dumps({"reasons": shard.reasons, "details": shard.details, "notes": shard.notes})
    with replaced_when_written(target) as file:
        np.savez(file, features=shard.features, fine=shard.fine, rest=np.array(rest))


def describe_shard(extractor: Extractor, places: Sequence[Place]) -> Shard:
    """Open and describe pictures; those that cannot be used get a reason instead."""
    reasons, details, notes = [""] * len(places), [""] * len(places), [list[str]() for _ in places]
    blocks: list[NDArray[np.float16]] = []
    for start in range(0, len(places), BATCH):
        opened, rows = [], []
        for row in range(start, min(start + BATCH, len(places))):
            try:
                place = places[row]
                name = place.path if place.size is None else ""
                picture, odd = open_picture(place.read(), name, extractor.target_side)
            except PictureError as error:
                reasons[row], details[row] = error.reason, error.detail
                continue
            opened.append(picture)
            rows.append(row)
            notes[row] = list(odd)
        if opened:
            with np.errstate(over="ignore"):
                features = extractor.describe(opened).astype(np.float16)
            finite = np.isfinite(features).all(axis=(1, 2))
            for row in np.asarray(rows)[~finite]:
                reasons[row], details[row] = "features not finite", f"{extractor.name} gave NaN or infinity"
            blocks.append(features[finite])
    fine = np.array([not reason for reason in reasons])
    features = np.concatenate(blocks) if blocks else np.zeros((0, 0, 0), dtype=np.float16)
    return Shard(features, fine, reasons, details, notes)
