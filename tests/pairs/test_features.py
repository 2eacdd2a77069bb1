import numpy as np
import pytest

from truepair.errors import DataError
from truepair.pairs.features import check_finite, open_array, open_features, open_vectors


@pytest.fixture
def saved(tmp_path):
    def save(array, name="train_ims.npy"):
        np.save(tmp_path / name, array)
        return tmp_path / name

    return save


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_features_are_mapped_and_keep_their_type(saved, dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    features = open_features(saved(array))
    assert isinstance(features, np.memmap)
    assert features.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(features, array)


def test_flat_features_have_one_region(saved):
    assert open_features(saved(np.ones((5, 3), np.float32))).shape == (5, 1, 3)
    assert open_vectors(saved(np.ones((5, 3), np.float32))).shape == (5, 3)


@pytest.mark.parametrize("fortran", [False, True])
def test_a_truncated_file_says_where_it_ends(saved, fortran):
    array = np.ones((10, 4, 8), np.float32)
    path = saved(np.asfortranarray(array) if fortran else array)
    content = path.read_bytes()
    path.write_bytes(content[: -3 * 4 * 8 * 4 - 5])
    with pytest.raises(DataError, match=r"truncated.*10 rows") as caught:
        open_features(path)
    assert path.name in str(caught.value)
    if not fortran:
        assert "row 6" in str(caught.value)


@pytest.mark.parametrize("keep", [0, 4, 7, 30])
def test_a_file_without_a_whole_header_is_refused(saved, keep):
    path = saved(np.ones((3, 2), np.float32))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"not a whole \.npy file"):
        open_array(path)


def test_pickles_are_never_loaded(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="pickled"):
        open_array(path)


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.ones((3, 2), np.int64), "floating point"),
        (np.ones((3, 2, 2, 2), np.float32), "shape"),
        (np.ones(3, np.float32), "shape"),
        (np.ones((0, 2), np.float32), "empty"),
    ],
)
def test_what_cannot_be_features_is_refused(saved, array, complaint):
    with pytest.raises(DataError, match=complaint):
        open_features(saved(array))


def test_text_vectors_have_no_regions(saved):
    with pytest.raises(DataError, match="one vector per text"):
        open_vectors(saved(np.ones((3, 2, 4), np.float32)))


def test_a_missing_file_is_an_error_for_people(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        open_features(tmp_path / "nothing.npy")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 17, 39])
def test_nan_and_infinity_are_found_in_their_row(monkeypatch, dtype, value, row):
    monkeypatch.setattr("truepair.pairs.features._BLOCK_BYTES", 400)
    array = np.full((40, 3, 5), np.finfo(dtype).max, dtype=dtype)
    array[::2] *= -1
    check_finite(array, "x.npy")
    array[row, 1, 2] = value
    with pytest.raises(DataError, match=f"x.npy: row {row}: the features hold {value}"):
        check_finite(array, "x.npy")
