"""The patches extractor: colour, gradients and texture on a grid, without weights that somebody has to download.

A picture is scaled to a square, whatever its shape, and cut into an H x W grid. Every cell is described by hand-made
numbers, which PCA fitted on the training split then whitens: equal variance in every direction is what a matcher's
first linear layer learns fastest from. A region holds its cell and, beside it, the whitened whole picture: otherwise
the mean over regions, which many matchers start from, would forget where things are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from scipy.linalg import eigh

from truepair.errors import DataError
from truepair.files import replaced_when_written

Array = NDArray[np.floating[Any]]

GRID = 6
SIDE = 96  # pixels; a cell is 16 x 16
ORIENTATIONS = 8
HUES = 8
GREYS = 3
PATTERNS = 10  # uniform local binary patterns, whatever their rotation
CELL_WIDTH = 6 + HUES + GREYS + 4 * ORIENTATIONS + 1 + PATTERNS
LOCAL_WIDTH, GLOBAL_WIDTH = 48, 208
REDUCED_WIDTH = 24  # of a cell in the whole picture

_D65 = np.array([0.9505, 1.0, 1.089], dtype=np.float32)
_RGB_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], dtype=np.float32
)
_LINEAR_LIGHT = np.where(
    np.arange(256) <= 10, np.arange(256) / 255 / 12.92, ((np.arange(256) / 255 + 0.055) / 1.055) ** 2.4
).astype(np.float32)


def _places(grid: int) -> NDArray[np.int64]:
    """The number of the cell that every pixel lies in, row by row."""
    row = np.arange(SIDE) * grid // SIDE
    return row[:, None] * grid + row


CELL, QUARTER = _places(GRID), _places(2 * GRID)


class Patches:
    """The extractor: raw cells of pictures, to be whitened once the training split has been seen."""

    name = "patches"
    whitened = True
    target_side: int | None = SIDE

    def describe(self, pictures: Sequence[Image.Image]) -> NDArray[np.float32]:
        """RGB pictures to pictures x cells x CELL_WIDTH."""
        return np.stack([describe(scaled(picture)) for picture in pictures])

    def settings(self) -> dict[str, Any]:
        """What the features depend on, for the manifest."""
        return {"grid": [GRID, GRID], "side": SIDE, "pillow": PIL.__version__, "numpy": np.__version__}


def scaled(picture: Image.Image) -> NDArray[np.uint8]:
    """An RGB picture as SIDE x SIDE x 3, whatever its size and aspect."""
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0))


def describe(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """One picture, SIDE x SIDE x 3, as cells x CELL_WIDTH: colour, gradient orientations, texture."""
    lab = _lab(pixels)
    parts = [_colour_moments(lab), _colour_histogram(lab), _orientations(lab[..., 0]), _patterns(lab[..., 0])]
    return np.concatenate(parts, axis=1).astype(np.float32)


def _lab(pixels: NDArray[np.uint8]) -> Array:
    """CIELAB, in which equal distances look equally different; divided by 100."""
    xyz = _LINEAR_LIGHT[pixels] @ _RGB_TO_XYZ.T / _D65
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([1.16 * y - 0.16, 5 * (x - y), 2 * (y - z)], axis=-1).astype(np.float32)


def _colour_moments(lab: Array) -> Array:
    """Mean and standard deviation of the colour of every cell."""
    side = SIDE // GRID
    cells = lab.reshape(GRID, side, GRID, side, 3).swapaxes(1, 2).reshape(GRID * GRID, side * side, 3)
    moments: Array = np.concatenate([cells.mean(axis=1), cells.std(axis=1)], axis=1)
    return moments


def _colour_histogram(lab: Array) -> Array:
    """The share of every hue, weighted by how colourful a pixel is, and of dark, middle and bright greys."""
    colourful = np.minimum(np.hypot(lab[..., 1], lab[..., 2]) / 0.4, 1)
    turn = np.arctan2(lab[..., 2], lab[..., 1]) / (2 * np.pi) % 1
    hues = _histograms(turn * HUES, HUES, colourful, CELL)
    # One spare bin takes what is shared with the bin above the brightest; nothing ever lands there.
    brightness = lab[..., 0].clip(0, 1) * (GREYS - 1)
    greys = _histograms(brightness, GREYS + 1, 1 - colourful, CELL)[:, :GREYS]
    shares: Array = np.sqrt(np.concatenate([hues, greys], axis=1))
    return shares


def _orientations(lightness: Array) -> Array:
    """Gradient orientations of the four quarters of every cell, without contrast, and the contrast."""
    padded = np.pad(lightness, 1, mode="edge")
    down, right = padded[2:, 1:-1] - padded[:-2, 1:-1], padded[1:-1, 2:] - padded[1:-1, :-2]
    turn = np.arctan2(down, right) / np.pi % 1
    bins = _histograms(turn * ORIENTATIONS, ORIENTATIONS, np.hypot(down, right), QUARTER)
    quarters = bins.reshape(GRID, 2, GRID, 2, ORIENTATIONS).swapaxes(1, 2)
    cells = quarters.reshape(GRID * GRID, 4 * ORIENTATIONS)
    total = cells.sum(axis=1, keepdims=True)
    # The constant keeps faint noise on an even ground from looking like an edge.
    return np.concatenate([np.sqrt(cells / (total + 0.05)), np.sqrt(total)], axis=1)


def _patterns(lightness: Array) -> Array:
    """Local binary patterns: how many of a pixel's eight neighbours are lighter, when they are in one run."""
    padded = np.pad(lightness, 1, mode="edge")
    side = len(lightness)
    ring = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    lighter = np.stack([padded[r : r + side, c : c + side] > lightness + 0.01 for r, c in ring])
    changes = (lighter != np.roll(lighter, 1, axis=0)).sum(axis=0, dtype=np.int8)
    kind = np.where(changes <= 2, lighter.sum(axis=0, dtype=np.int8), PATTERNS - 1)
    counts = np.bincount((CELL * PATTERNS + kind).ravel(), minlength=GRID * GRID * PATTERNS)
    return np.sqrt(counts.reshape(-1, PATTERNS) / (SIDE // GRID) ** 2)


def _histograms(position: Array, bins: int, weight: Array, place: NDArray[np.int64]) -> Array:
    """Circular histograms over the pixels of every place, divided by their number: places x bins.

    A value is shared between its two nearest bins: nothing jumps where it crosses their border.
    """
    low = np.floor(position)
    share = position - low
    below = low.astype(np.int64) % bins
    places = int(place[-1, -1]) + 1
    counts = np.zeros(places * bins)
    for index, part in ((below, weight * (1 - share)), ((below + 1) % bins, weight * share)):
        counts += np.bincount((place * bins + index).ravel(), part.ravel(), minlength=places * bins)
    shares: Array = counts.reshape(places, bins) * (places / place.size)
    return shares


@dataclass(frozen=True, eq=False)
class Whitening:
    """PCA of cells and of whole pictures. Means are vectors, axes are raw width x kept width, already scaled."""

    local_mean: Array
    local_axes: Array
    global_mean: Array
    global_axes: Array

    @property
    def width(self) -> int:
        """Width of a region."""
        return int(self.local_axes.shape[1] + self.global_axes.shape[1])

    def __call__(self, cells: Array) -> Array:
        """Pictures x cells x CELL_WIDTH to pictures x cells x width, unit variance on the training split."""
        local = (cells - self.local_mean) @ self.local_axes
        whole = (cells.reshape(len(cells), -1) - self.global_mean) @ self.global_axes
        spread = np.broadcast_to(whole[:, None], (*local.shape[:2], whole.shape[1]))
        return np.concatenate([local, spread], axis=2)

    def save(self, path: Path) -> None:
        """Write beside the features, so that later pictures are described in the same way."""
        with replaced_when_written(path) as file:
            np.savez(file, **vars(self))

    @staticmethod
    def load(path: Path) -> "Whitening":
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return Whitening(**arrays)
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                path, f"this is no whitening of the patches extractor ({error}).", "Embed the data again."
            ) from None


def fit_whitening(blocks: Callable[[], Iterable[Array]]) -> Whitening:
    """Fit on blocks of pictures x cells x CELL_WIDTH, which are gone through twice.

    Only sums are kept, so there may be any number of blocks. The whole picture is reduced cell by cell before its own
    axes are sought: that costs a tenth of the time, and retrieval does not notice it.
    """
    local, whole = _Moments(), _Moments()
    for cells in blocks():
        local.add(cells.reshape(-1, cells.shape[-1]))
    local_mean, local_axes, deviation = local.principal_axes(LOCAL_WIDTH)
    reduction = (local_axes * deviation)[:, :REDUCED_WIDTH]
    for cells in blocks():
        whole.add(((cells - local_mean) @ reduction).reshape(len(cells), -1))
    mean, axes, _ = whole.principal_axes(GLOBAL_WIDTH)
    # The two steps in one: cells x CELL_WIDTH to the global width.
    per_cell = axes.reshape(-1, reduction.shape[1], axes.shape[1])
    global_axes = (reduction @ per_cell).reshape(-1, axes.shape[1])
    global_mean = (local_mean + mean.reshape(-1, reduction.shape[1]) @ reduction.T).ravel()
    return Whitening(local_mean, local_axes, global_mean, global_axes)


class _Moments:
    """Sums of rows and of their outer products."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Any = 0.0
        self.products: Any = 0.0

    def add(self, rows: Array) -> None:
        exact = rows.astype(np.float64)
        self.count += len(rows)
        self.total = self.total + exact.sum(axis=0)
        self.products = self.products + exact.T @ exact

    def principal_axes(self, wanted: int) -> tuple[Array, Array, Array]:
        """Mean; the axes of largest variance, divided by the standard deviation along them; these deviations."""
        mean = self.total / self.count
        covariance = self.products / self.count - np.outer(mean, mean)
        width = len(mean)
        keep = min(wanted, width)
        variance, axes = eigh(covariance, subset_by_index=(width - keep, width - 1))
        variance, axes = variance[::-1].clip(0), axes[:, ::-1]
        # A sign for every axis that does not depend on the solver.
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(keep)])
        # Axes with next to no variance carry rounding noise: the floor keeps it from being blown up.
        scale = np.sqrt(variance + 1e-4 * variance[:1] + 1e-12)
        return mean.astype(np.float32), (axes / scale).astype(np.float32), scale.astype(np.float32)
