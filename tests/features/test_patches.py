import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from truepair.errors import DataError
from truepair.features import patches
from truepair.features.patches import (
    CELL_WIDTH,
    GREYS,
    GRID,
    HUES,
    ORIENTATIONS,
    SIDE,
    Patches,
    Whitening,
    describe,
    fit_whitening,
)
from truepair.features.threads import one_blas_thread

CELL_SIDE = SIDE // GRID
COLOUR = slice(0, 6)
HUE = slice(6, 6 + HUES)
GREY = slice(6 + HUES, 6 + HUES + GREYS)
GRADIENT = slice(GREY.stop, GREY.stop + 4 * ORIENTATIONS)
CONTRAST = GRADIENT.stop
PATTERN = slice(CONTRAST + 1, CELL_WIDTH)


def random_pixels(seed=0):
    small = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def plain(red, green, blue):
    return np.full((SIDE, SIDE, 3), (red, green, blue), dtype=np.uint8)


@pytest.mark.parametrize(
    ("rgb", "lab"),  # from the definition of CIELAB, as published converters give them
    [
        ((255, 255, 255), (100.0, 0.0, 0.0)),
        ((0, 0, 0), (0.0, 0.0, 0.0)),
        ((255, 0, 0), (53.24, 80.09, 67.20)),
        ((0, 128, 0), (46.23, -51.70, 49.90)),
        ((0, 0, 255), (32.30, 79.19, -107.86)),
        ((119, 119, 119), (50.03, 0.0, 0.0)),
    ],
)
def test_colours_are_cielab(rgb, lab):
    cells = describe(plain(*rgb))
    np.testing.assert_allclose(cells[:, :3] * 100, np.tile(lab, (GRID**2, 1)), atol=0.1)
    np.testing.assert_allclose(cells[:, 3:6], 0, atol=1e-3)


def test_gradients_equal_the_definition_written_as_loops():
    pixels = random_pixels()
    lightness = patches._lab(pixels)[..., 0].astype(np.float64)
    expected = np.zeros((2 * GRID, 2 * GRID, ORIENTATIONS))
    for r in range(SIDE):
        for c in range(SIDE):
            down = lightness[min(r + 1, SIDE - 1), c] - lightness[max(r - 1, 0), c]
            right = lightness[r, min(c + 1, SIDE - 1)] - lightness[r, max(c - 1, 0)]
            position = (math.atan2(down, right) % math.pi) / math.pi * ORIENTATIONS
            low = math.floor(position)
            quarter = expected[r * 2 * GRID // SIDE, c * 2 * GRID // SIDE]
            quarter[low % ORIENTATIONS] += math.hypot(down, right) * (1 - position + low)
            quarter[(low + 1) % ORIENTATIONS] += math.hypot(down, right) * (position - low)
    expected /= (CELL_SIDE // 2) ** 2
    cells = describe(pixels)
    for row in range(GRID):
        for column in range(GRID):
            cell = expected[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].ravel()
            got = cells[row * GRID + column]
            np.testing.assert_allclose(got[GRADIENT], np.sqrt(cell / (cell.sum() + 0.05)), atol=2e-4)
            np.testing.assert_allclose(got[CONTRAST], np.sqrt(cell.sum()), atol=2e-4)


def test_patterns_equal_the_definition_written_as_loops():
    pixels = random_pixels(1)
    lightness = patches._lab(pixels)[..., 0]
    ring = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
    expected = np.zeros((GRID, GRID, 10))
    for r in range(SIDE):
        for c in range(SIDE):
            around = [lightness[min(max(r + i, 0), SIDE - 1), min(max(c + j, 0), SIDE - 1)] for i, j in ring]
            lighter = [bool(value > lightness[r, c] + np.float32(0.01)) for value in around]
            changes = sum(lighter[k] != lighter[k - 1] for k in range(8))
            expected[r // CELL_SIDE, c // CELL_SIDE, sum(lighter) if changes <= 2 else 9] += 1
    got = describe(pixels)[:, PATTERN]
    np.testing.assert_allclose(got, np.sqrt(expected.reshape(-1, 10) / CELL_SIDE**2), atol=1e-5)


def test_histogram_of_colours_adds_up_to_one():
    cells = describe(random_pixels(2))
    shares = (cells[:, HUE] ** 2).sum(axis=1) + (cells[:, GREY] ** 2).sum(axis=1)
    np.testing.assert_allclose(shares, 1, atol=1e-4)


def test_greys_go_to_the_bin_of_their_lightness():
    for level, bin_ in ((0, 0), (119, 1), (255, 2)):
        cells = describe(plain(level, level, level))
        assert (cells[:, GREY].argmax(axis=1) == bin_).all()
        np.testing.assert_allclose(cells[:, GREY].max(axis=1), 1, atol=0.02)


def test_an_edge_is_seen_where_it_is():
    pixels = plain(0, 0, 0).copy()
    pixels[:, SIDE // 2 + CELL_SIDE // 2 :] = 255  # upright, in the middle of the fourth column of cells
    contrast = describe(pixels)[:, CONTRAST].reshape(GRID, GRID)
    assert (contrast[:, 3] > 0.1).all()
    np.testing.assert_allclose(np.delete(contrast, 3, axis=1), 0, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 2**31))
def test_any_size_gives_finite_features_of_one_shape(width, height, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    cells = Patches().describe([Image.fromarray(noise)])
    assert cells.shape == (1, GRID**2, CELL_WIDTH)
    assert np.isfinite(cells).all()


def test_company_does_not_change_a_picture():
    pictures = [Image.fromarray(random_pixels(seed)) for seed in range(3)]
    together = Patches().describe(pictures)
    for picture, cells in zip(pictures, together, strict=True):
        np.testing.assert_array_equal(Patches().describe([picture])[0], cells)


@pytest.fixture(autouse=True)
def one_thread():
    with one_blas_thread():
        yield


def cells_of(count, seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((CELL_WIDTH, CELL_WIDTH)) / 8
    return (rng.standard_normal((count, GRID**2, CELL_WIDTH)) @ mixing + 1).astype(np.float32)


def test_whitened_training_features_have_unit_variance():
    cells = cells_of(400)
    regions = fit_whitening(lambda: [cells])(cells)
    local = regions[..., : patches.LOCAL_WIDTH].reshape(-1, patches.LOCAL_WIDTH)
    np.testing.assert_allclose(local.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(local.T), np.eye(patches.LOCAL_WIDTH), atol=0.03)
    whole = regions[:, 0, patches.LOCAL_WIDTH :]
    np.testing.assert_allclose(whole.std(axis=0), 1, atol=0.03)
    assert regions.shape == (400, GRID**2, patches.LOCAL_WIDTH + patches.GLOBAL_WIDTH)


def test_axes_are_those_of_a_singular_value_decomposition():
    cells = cells_of(50)
    rows = cells.reshape(-1, CELL_WIDTH).astype(np.float64)
    _, _, expected = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    axes = fit_whitening(lambda: [cells]).local_axes
    cosine = (axes / np.linalg.norm(axes, axis=0)).T[:10] @ expected[:10].T
    np.testing.assert_allclose(np.abs(cosine), np.eye(10), atol=1e-3)


def test_blocks_do_not_change_the_fit():
    cells = cells_of(300)
    whole = fit_whitening(lambda: [cells])
    parts = fit_whitening(lambda: [cells[:7], cells[7:100], cells[100:]])
    np.testing.assert_allclose(whole(cells), parts(cells), atol=2e-3)


def test_fewer_pictures_than_axes_blow_nothing_up():
    cells = cells_of(5)
    regions = fit_whitening(lambda: [cells])(cells_of(20, seed=1))
    assert np.isfinite(regions).all()
    assert np.abs(regions).max() < 1000


def test_equal_pictures_give_finite_features():
    cells = np.tile(describe(plain(9, 9, 9)), (4, 1, 1))
    np.testing.assert_allclose(fit_whitening(lambda: [cells])(cells), 0, atol=1e-2)


def test_saved_whitening_is_read_back(tmp_path):
    cells = cells_of(30)
    whitening = fit_whitening(lambda: [cells])
    whitening.save(tmp_path / "whitening.npz")
    np.testing.assert_array_equal(Whitening.load(tmp_path / "whitening.npz")(cells), whitening(cells))


def test_something_else_is_no_whitening(tmp_path):
    np.savez(tmp_path / "other.npz", numbers=np.zeros(3))
    with pytest.raises(DataError, match="no whitening"):
        Whitening.load(tmp_path / "other.npz")
