"""Feature arrays in .npy files: opened without reading them, checked before they can do harm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair.errors import DataError
from truepair.progress import track

_BLOCK_BYTES = 16 * 2**20


def open_array(path: str | Path) -> NDArray[Any]:
    """Memory-map an .npy file whose header and size agree. The contents are not read."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            shape, fortran_order, dtype, start = _read_header(file, path)
    except OSError as error:
        raise DataError(path, f"it cannot be read ({error.strerror}).", "Check the path.") from None
    if dtype.hasobject:
        raise DataError(
            path,
            "it holds pickled Python objects, which are never loaded because loading them can run any code.",
            "Save a plain numeric array with numpy.save.",
        )
    rows = shape[0] if shape else 1
    expected, present = start + dtype.itemsize * _product(shape), path.stat().st_size
    if present < expected:
        row_bytes = dtype.itemsize * _product(shape[1:])
        whole = rows if fortran_order or not row_bytes else (present - start) // row_bytes
        raise DataError(
            path,
            f"the file is truncated: its header promises {rows:,} rows ({expected:,} bytes), "
            f"but it ends after {present:,} bytes.",
            "Copy or download the file again, and compare its size.",
            row=None if fortran_order else f"row {whole:,}",
        )
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def open_features(path: str | Path) -> NDArray[Any]:
    """Memory-map item features as items x regions x width. An items x width array has one region per item."""
    array = open_array(path)
    if array.dtype.kind != "f":
        raise DataError(
            path, f"features must be floating point, these are {array.dtype}.", "Save float16 or float32."
        )
    if array.ndim not in (2, 3):
        raise DataError(
            path,
            f"features must be items x width or items x regions x width, this array has the shape {array.shape}.",
            "Reshape it and save it again.",
        )
    if 0 in array.shape:
        raise DataError(
            path, f"the array is empty (shape {array.shape}).", "Save at least one row of features."
        )
    return array[:, None] if array.ndim == 2 else array


def open_vectors(path: str | Path) -> NDArray[Any]:
    """Memory-map one vector per item, items x width."""
    array = open_features(path)
    if array.shape[1] != 1:
        raise DataError(
            path,
            f"one vector per text is needed (texts x width), this array has {array.shape[1]} per text.",
            "Save an array of two dimensions.",
        )
    return array[:, 0]


def check_finite(array: NDArray[Any], where: str | Path) -> None:
    """Read the whole array, block by block, and refuse NaN and infinity."""
    for start, block in track(_blocks(array), f"reading {Path(where).name}", total=_block_count(array)):
        if _all_finite(block):
            continue
        finite = np.isfinite(block.reshape(len(block), -1))
        row = int(np.argmin(finite.all(axis=1)))
        value = block.reshape(len(block), -1)[row, int(np.argmin(finite[row]))]
        raise not_finite(array, start + row, float(value), where)


def not_finite(array: NDArray[Any], row: int, value: float, where: str | Path) -> DataError:
    """The error for a row of features that holds NaN or infinity."""
    # A view that leaves out repeated rows steps over several rows of the file at once.
    step = max(1, array.strides[0] // max(1, array.dtype.itemsize * _product(array.shape[1:])))
    row *= step
    return DataError(
        where,
        f"the features hold {value}.",
        "Compute the features of this row again, or remove it together with its captions.",
        row=f"row {row:,}",
    )


def _blocks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    rows = _rows_in_block(array)
    for start in range(0, len(array), rows):
        yield start, np.asarray(array[start : start + rows])


def _block_count(array: NDArray[Any]) -> int:
    return -(-len(array) // _rows_in_block(array))


def _rows_in_block(array: NDArray[Any]) -> int:
    row_bytes = array.dtype.itemsize * _product(array.shape[1:])
    return max(1, _BLOCK_BYTES // max(1, row_bytes))


def _all_finite(block: NDArray[Any]) -> bool:
    if block.dtype == np.float16:
        # All exponent bits set means NaN or infinity. Comparing integers is many times faster than isfinite here.
        return bool((block.view(np.uint16) & 0x7FFF).max(initial=0) < 0x7C00)
    return bool(np.isfinite(block).all())


def _read_header(file: Any, path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran_order, dtype = read(file)
    except (ValueError, KeyError, EOFError) as error:
        raise DataError(
            path, f"this is not a whole .npy file ({error}).", "Write it with numpy.save, or copy it again."
        ) from None
    return shape, fortran_order, dtype, file.tell()


def _product(numbers: tuple[int, ...]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product
