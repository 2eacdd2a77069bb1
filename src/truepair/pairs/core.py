"""Pairs: images, texts, and which image each text is paired with."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Protocol = Literal["none", "caption", "image", "unknown"]


@dataclass(frozen=True)
class Source:
    """A file the data came from. It is hashed when somebody asks, not before: feature files can be huge."""

    path: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file as it is now, in hexadecimal."""
        status = Path(self.path).stat()
        return _sha256(self.path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, changed: int) -> str:
    # Size and time of change are arguments so that a file that was replaced is read again.
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class NoiseRecord:
    """How pairs came to be mismatched, as far as it is known.

    protocol: "caption" permutes single captions (NCR), "image" permutes images with all their captions
    (DECL, RCL). nominal: the ratio that was asked for. measured: the share of pairs whose image really
    differs from the true one, None where the truth is unknown.
    """

    protocol: Protocol = "none"
    nominal: float | None = None
    measured: float | None = None
    seed: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Provenance:
    """Where the data and its noise came from. set_aside: pairs left out because their caption is empty."""

    layout: str
    sources: tuple[Source, ...] = ()
    noise: NoiseRecord = field(default_factory=NoiseRecord)
    set_aside: int = 0

    def describe(self) -> dict[str, Any]:
        """All of it as plain values for a JSON file, sources with their sha256."""
        sources = [{"path": source.path, "sha256": source.sha256} for source in self.sources]
        return {**asdict(self), "sources": sources}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Images, texts, and which image each text is paired with. One row per text; rows never change their id.

    images: image features, images x regions x width (one region for plain embeddings), float16 or float32,
        memory-mapped by the readers and never copied whole.
    texts: one string per pair; empty when the data has text vectors only.
    text_vectors: one vector per pair where the data comes as embeddings, pairs x width.
    image_of: the image row each text is paired with, perhaps wrongly.
    true_image_of: the image row each text belongs to, where that is known.
    region_counts: how many leading regions of each image are real, None when all are.
    ids, image_ids: stable names of pairs and images. picture_paths: where the pictures lie, if there are any.
    """

    images: NDArray[Any]
    texts: Sequence[str]
    image_of: NDArray[np.int64]
    ids: Sequence[str]
    image_ids: Sequence[str]
    split: str
    provenance: Provenance
    true_image_of: NDArray[np.int64] | None = None
    text_vectors: NDArray[Any] | None = None
    region_counts: NDArray[np.int64] | None = None
    picture_paths: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.image_of)

    @property
    def n_images(self) -> int:
        """How many images there are, paired or not."""
        return len(self.images)

    @property
    def mismatched(self) -> NDArray[np.bool_] | None:
        """Which pairs are known to be wrong, None where the truth is unknown."""
        return None if self.true_image_of is None else self.image_of != self.true_image_of

    def subset(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "Pairs":
        """The pairs of these rows, with their ids. All images stay, so that image rows keep their meaning."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            texts=[self.texts[i] for i in index] if len(self.texts) else self.texts,
            image_of=self.image_of[index],
            ids=[self.ids[i] for i in index],
            true_image_of=None if self.true_image_of is None else self.true_image_of[index],
            text_vectors=None if self.text_vectors is None else self.text_vectors[index],
        )
