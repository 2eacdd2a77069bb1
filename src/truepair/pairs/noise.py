"""Synthetic noise: mismatched pairs made and read as the published codes make and store them.

An index says which image is shown with a caption. At *caption* granularity (NCR and most that follow) it has one
entry a caption: r of the captions are picked, and their images permuted among themselves. At *image*
granularity (DECL, RCL) it has one entry an image: r of the images are picked and permuted, and all captions of a
slot move together; L2RM stores the same with every entry repeated once a caption.
"""

import hashlib
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truepair.errors import DataError, TruepairError
from truepair.files import replaced_when_written
from truepair.pairs.core import NoiseRecord, Pairs, Protocol

Granularity = Literal["caption", "image"]


@dataclass(frozen=True)
class Noise:
    """Noise to be made: ratio of the captions or images to pick, seed, and which of the two protocols."""

    ratio: float
    seed: int = 123
    protocol: Granularity = "caption"


def caption_noise(image_of: NDArray[np.int64], ratio: float, seed: int) -> NDArray[np.int64]:
    """Permute the images of int(ratio * n) captions among themselves; one entry a caption.

    The calls are those of NCR's loader, so that its files come out for the same state of numpy's generator.
    """
    generator = np.random.RandomState(seed)
    captions = np.arange(len(image_of))
    generator.shuffle(captions)
    picked = captions[: _count(ratio, len(captions))]
    images = image_of[picked]
    generator.shuffle(images)
    index = np.array(image_of, dtype=np.int64)
    index[picked] = images
    return index


def image_noise(n_images: int, ratio: float, seed: int) -> NDArray[np.int64]:
    """Permute int(ratio * n) of the images among themselves; one entry an image (DECL, RCL)."""
    generator = np.random.RandomState(seed)
    images = np.arange(n_images)
    generator.shuffle(images)
    picked = images[: _count(ratio, n_images)]
    shuffled = picked.copy()
    generator.shuffle(shuffled)
    index = np.arange(n_images, dtype=np.int64)
    index[picked] = shuffled
    return index


def _count(ratio: float, total: int) -> int:
    if not 0 <= ratio <= 1:
        raise TruepairError(f"a noise ratio of {ratio} is not possible: it must lie between 0 and 1.")
    return int(ratio * total)


def make_noise(pairs: Pairs, noise: Noise) -> Pairs:
    """The pairs with noise of this ratio, seed and protocol."""
    if noise.protocol == "caption":
        index = caption_noise(pairs.image_of, noise.ratio, noise.seed)
    else:
        index = image_noise(pairs.n_images, noise.ratio, noise.seed)
    noisy = apply_noise(pairs, index)
    record = replace(noisy.provenance.noise, protocol=noise.protocol, nominal=noise.ratio, seed=noise.seed)
    return _with_record(noisy, record)


def apply_noise(pairs: Pairs, index: NDArray[Any], where: str | Path = "noise index") -> Pairs:
    """Pair every text with the image that the index names. The pairs as they were become the truth.

    The measured share counts the pairs whose image really changed: a caption that was picked may land on its
    own image, perhaps in the place of a sister caption.
    """
    if pairs.provenance.noise.protocol != "none":
        raise TruepairError("these pairs have noise already; add noise to the clean pairs instead.")
    protocol = _protocol(index, pairs.image_of, pairs.n_images, where)
    index = index.astype(np.int64)
    image_of = index if len(index) == len(pairs) else index[pairs.image_of]
    truth = pairs.image_of if pairs.true_image_of is None else pairs.true_image_of
    noisy = replace(pairs, image_of=image_of, true_image_of=truth)
    measured = float(np.mean(image_of != truth))
    return _with_record(noisy, NoiseRecord(protocol, measured=measured, sha256=index_sha256(index)))


def detect_protocol(index: NDArray[Any], n_images: int, n_captions: int) -> Protocol:
    """Whether an index moves captions or images, or nothing ("none"). An index that fits neither is refused.

    The captions of an image are taken to lie next to each other, the same number for every image.
    """
    if n_captions % n_images:
        raise TruepairError(f"{n_captions:,} captions cannot be shared equally by {n_images:,} images.")
    clean = np.repeat(np.arange(n_images, dtype=np.int64), n_captions // n_images)
    return _protocol(index, clean, n_images, "noise index")


def _protocol(index: NDArray[Any], clean: NDArray[np.int64], n_images: int, where: str | Path) -> Protocol:
    _check_index(index, clean, n_images, where)
    image_of = index if len(index) == len(clean) else index[clean]
    if np.array_equal(image_of, clean):
        return "none"
    # Image granularity: whoever shares an image before shares one afterwards.
    slot = np.zeros(n_images, dtype=np.int64)
    slot[clean] = image_of
    together = np.array_equal(slot[clean], image_of)
    one_each = len(clean) == n_images
    return "image" if together and not one_each else "caption"


def _check_index(index: NDArray[Any], clean: NDArray[np.int64], n_images: int, where: str | Path) -> None:
    remedy = "Use the noise file that was made for this data set and split."
    if index.ndim != 1:
        raise DataError(where, f"an index is a plain list, this array has the shape {index.shape}.", remedy)
    if index.dtype.kind not in "iu":
        raise DataError(where, f"an index holds whole numbers, this array holds {index.dtype}.", remedy)
    n_captions = len(clean)
    if len(index) not in (n_captions, n_images):
        raise DataError(
            where,
            f"it has {len(index):,} entries, but the data has {n_captions:,} captions and {n_images:,} images.",
            remedy,
        )
    outside = np.flatnonzero((index < 0) | (index >= n_images))
    if len(outside):
        raise DataError(
            where,
            f"it names image {index[outside[0]]:,}, but there are {n_images:,} images, 0 to {n_images - 1:,}.",
            remedy,
            row=f"row {outside[0]:,}",
        )
    before = np.bincount(clean, minlength=n_images) if len(index) == n_captions else np.ones(n_images, int)
    after = np.bincount(index, minlength=n_images)
    changed = np.flatnonzero(before != after)
    if len(changed):
        image = changed[0]
        raise DataError(
            where,
            f"it does not rearrange the images of this data: image {image:,} occurs {after[image]} times "
            f"instead of {before[image]} ({len(changed):,} images differ).",
            remedy,
        )


def read_noise(path: str | Path) -> NDArray[np.int64]:
    """Read an index file of the published codes: .npy, or .npz with one array. Pickled objects are refused."""
    path = Path(path)
    try:
        content = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(path, "this noise file does not exist.", "Check the path.") from None
    except (ValueError, EOFError, OSError) as error:
        # numpy takes whatever it does not know for a pickle, and recommends to load that unsafely.
        reason = "" if "pickle" in str(error) else f" ({error})"
        raise DataError(
            path,
            f"this is not a whole .npy file of numbers{reason}.",
            "Copy the file again, or save the index with numpy.save.",
        ) from None
    if isinstance(content, np.lib.npyio.NpzFile):
        with content:
            if len(content.files) != 1:
                raise DataError(
                    path,
                    f"it holds {len(content.files)} arrays ({', '.join(content.files)}).",
                    "Save the index alone.",
                )
            content = content[content.files[0]]
    index: NDArray[Any] = content
    return index


def write_noise(path: str | Path, index: NDArray[np.int64]) -> None:
    """Write an index file that the published codes read: int64, one entry a caption or an image."""
    with replaced_when_written(path) as file:
        file.write(_serialized(index))


def index_sha256(index: NDArray[Any]) -> str:
    """The SHA-256 of the file that write_noise would write."""
    return hashlib.sha256(_serialized(index)).hexdigest()


def apply_noise_file(pairs: Pairs, path: str | Path) -> Pairs:
    """The pairs with the noise of an index file. The nominal share is read from the file's name if it has one."""
    path = Path(path)
    noisy = apply_noise(pairs, read_noise(path), path)
    shares = re.findall(r"(?<![\d.])[01]?\.\d+(?![\d])", path.stem)
    nominal = float(shares[0]) if len(shares) == 1 and float(shares[0]) <= 1 else None
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return _with_record(noisy, replace(noisy.provenance.noise, nominal=nominal, sha256=sha256))


def _serialized(index: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(index, dtype=np.int64))
    return buffer.getvalue()


def _with_record(pairs: Pairs, record: NoiseRecord) -> Pairs:
    return replace(pairs, provenance=replace(pairs.provenance, noise=record))
