import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truepair import load_pairs
from truepair.errors import DataError, TruepairError
from truepair.pairs.noise import (
    Noise,
    apply_noise,
    apply_noise_file,
    caption_noise,
    detect_protocol,
    image_noise,
    index_sha256,
    make_noise,
    read_noise,
    write_noise,
)


@pytest.fixture
def pairs(precomputed):
    return load_pairs(precomputed(images=40))


def ncr_index(n_captions, im_div, ratio, seed):
    """NCR's loader, written out. numpy.random.seed and numpy.random.shuffle are those of a RandomState."""
    random = np.random.RandomState(seed)
    t2i = np.arange(0, n_captions) // im_div
    idx = np.arange(n_captions)
    random.shuffle(idx)
    chosen = idx[: int(ratio * n_captions)]
    images = t2i[chosen]
    random.shuffle(images)
    t2i[chosen] = images
    return t2i


def rcl_index(n_images, ratio, seed):
    """The loaders of DECL and RCL, written out."""
    random = np.random.RandomState(seed)
    index = np.arange(n_images)
    order = np.arange(n_images)
    random.shuffle(order)
    chosen = order[0 : int(ratio * n_images)]
    shuffled = np.array(chosen)
    random.shuffle(shuffled)
    index[chosen] = shuffled
    return index


@pytest.mark.parametrize("seed", [0, 123])
@pytest.mark.parametrize("ratio", [0, 0.2, 0.333, 0.8, 1])
def test_caption_noise_is_the_published_one(ratio, seed):
    expected = ncr_index(1000, 5, ratio, seed)
    np.testing.assert_array_equal(caption_noise(np.arange(1000) // 5, ratio, seed), expected)


@pytest.mark.parametrize("seed", [0, 123])
@pytest.mark.parametrize("ratio", [0, 0.2, 0.333, 0.8, 1])
def test_image_noise_is_the_published_one(ratio, seed):
    np.testing.assert_array_equal(image_noise(400, ratio, seed), rcl_index(400, ratio, seed))


@pytest.mark.parametrize(("ratio", "mismatched"), [(0.2, 28_999), (0.4, 58_000), (0.6, 86_996)])
def test_seed_96_gives_the_statistics_of_the_released_flickr30k_files(ratio, mismatched):
    # Counted in the files that BiCro and PC2 released: how many of the 145,000 captions are mismatched, and at
    # ratio 0.2 how many images have 0, 1, ... 5 mismatched captions.
    clean = np.arange(145_000) // 5
    index = caption_noise(clean, ratio, 96)
    wrong = index != clean
    assert wrong.sum() == mismatched
    if ratio == 0.2:
        per_image = wrong.reshape(29_000, 5).sum(axis=1)
        assert np.bincount(per_image).tolist() == [9373, 12113, 5842, 1493, 172, 7]


def test_recorded_indices_do_not_change():
    # From numpy.random.seed(123) and numpy.random.shuffle, for 10,000 captions of 2,000 images.
    index = caption_noise(np.arange(10_000) // 5, 0.4, 123)
    assert index[:12].tolist() == [0, 0, 1554, 30, 1385, 1, 902, 1437, 1, 854, 1716, 1475]
    assert image_noise(2000, 0.4, 123)[:12].tolist() == [517, 1, 2, 3, 4, 1145, 6, 7, 8, 9, 10, 11]


@given(
    images=st.integers(1, 30),
    per_image=st.integers(1, 5),
    ratio=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_noise_rearranges_and_its_kind_is_recognised(images, per_image, ratio, seed):
    clean = np.repeat(np.arange(images), per_image)
    by_caption = caption_noise(clean, ratio, seed)
    assert sorted(by_caption) == clean.tolist()
    assert np.sum(by_caption != clean) <= ratio * len(clean)
    by_image = image_noise(images, ratio, seed)
    assert sorted(by_image) == list(range(images))
    repeated = np.repeat(by_image, per_image)
    expected = (
        "none" if np.array_equal(by_image, np.arange(images)) else "image" if per_image > 1 else "caption"
    )
    assert detect_protocol(by_image, images, len(clean)) == expected
    assert detect_protocol(repeated, images, len(clean)) == expected


def test_the_protocol_of_published_files_is_recognised():
    assert detect_protocol(ncr_index(1000, 5, 0.2, 1), 200, 1000) == "caption"
    assert detect_protocol(rcl_index(200, 0.2, 1), 200, 1000) == "image"
    assert detect_protocol(np.repeat(rcl_index(200, 0.2, 1), 5), 200, 1000) == "image"
    assert detect_protocol(ncr_index(200, 1, 0.2, 1), 200, 200) == "caption"
    assert detect_protocol(np.arange(200), 200, 1000) == "none"
    with pytest.raises(TruepairError, match="cannot be shared equally"):
        detect_protocol(np.arange(200), 200, 999)


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        (np.zeros((40, 1), np.int64), r"shape \(40, 1\)"),
        (np.arange(40.0), "float64"),
        (np.ones(40, bool), "bool"),
        (np.arange(41), "41 entries, but the data has 200 captions and 40 images"),
        (np.arange(145_000) // 5, "145,000 entries"),
        (np.arange(40) + 1, "row 39: it names image 40, but there are 40 images"),
        (np.arange(40) - 1, "row 0: it names image -1"),
        (np.zeros(40, np.int64), "image 0 occurs 40 times instead of 1"),
        (np.array([0, 0, *range(2, 40)]), "image 0 occurs 2 times instead of 1"),
        (np.repeat(np.arange(40), 5)[::-1] * 0 + np.arange(200) // 6, "occurs 6 times instead of 5"),
    ],
)
def test_an_index_that_does_not_fit_is_refused_with_the_reason(pairs, tmp_path, index, complaint):
    with pytest.raises(DataError, match=complaint):
        apply_noise(pairs, index)
    np.save(tmp_path / "noise.npy", index)
    with pytest.raises(DataError, match=complaint) as caught:
        apply_noise_file(pairs, tmp_path / "noise.npy")
    assert "noise.npy" in str(caught.value)
    with pytest.raises(DataError, match=complaint):
        detect_protocol(index, 40, 200)


@pytest.mark.parametrize("protocol", ["caption", "image"])
@pytest.mark.parametrize("ratio", [0.2, 0.7])
def test_measured_share_counts_images_that_really_changed(pairs, protocol, ratio):
    noisy = make_noise(pairs, Noise(ratio, seed=3, protocol=protocol))
    record = noisy.provenance.noise
    wrong = [given != true for given, true in zip(noisy.image_of, pairs.image_of, strict=True)]
    assert record.measured == sum(wrong) / 200
    assert 0 < record.measured <= ratio
    assert (record.protocol, record.nominal, record.seed) == (protocol, ratio, 3)
    assert noisy.mismatched.tolist() == wrong
    assert noisy.true_image_of.tolist() == pairs.image_of.tolist()
    assert noisy.images is pairs.images
    if protocol == "image":
        assert noisy.image_of.reshape(40, 5).tolist() == [[image] * 5 for image in noisy.image_of[::5]]


def test_a_caption_on_its_sisters_place_is_no_mismatch(pairs):
    index = pairs.image_of.copy()
    index[[0, 3]] = index[[3, 0]]
    assert apply_noise(pairs, index).provenance.noise.measured == 0


@pytest.mark.parametrize("form", ["captions", "images", "repeated", "npz"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_published_files_give_the_same_pairs(pairs, tmp_path, form, dtype):
    by_image = rcl_index(40, 0.5, 1)
    index = {"captions": ncr_index(200, 5, 0.5, 1), "images": by_image}.get(
        form, np.repeat(by_image, 5)
    ).astype(dtype)
    path = tmp_path / ("noise_inx_0.5.npz" if form == "npz" else "noise_inx_0.5.npy")
    if form == "npz":
        np.savez(path, index)
    else:
        np.save(path, index)
    noisy = load_pairs(tmp_path, noise=path)
    expected = index[pairs.image_of] if form == "images" else index
    assert noisy.image_of.tolist() == expected.tolist()
    assert noisy.image_of.dtype == np.int64
    assert noisy.provenance.noise.nominal == 0.5
    assert noisy.provenance.noise.protocol == ("caption" if form == "captions" else "image")


@pytest.mark.parametrize(
    ("name", "nominal"),
    [
        ("0.4_noise_index.npy", 0.4),
        ("noise_inx_0.6.npy", 0.6),
        ("f30k_0.2.npy", 0.2),
        ("all_1.0.npy", 1.0),
        ("twice_1.5.npy", None),
        ("noise.npy", None),
        ("v1.2_0.4.npy", None),
        ("seed_12.4.npy", None),
    ],
)
def test_nominal_share_is_read_from_the_name(pairs, tmp_path, name, nominal):
    write_noise(tmp_path / name, image_noise(40, 0.4, 1))
    assert apply_noise_file(pairs, tmp_path / name).provenance.noise.nominal == nominal


def test_written_files_are_what_the_published_codes_load(tmp_path):
    index = caption_noise(np.arange(200) // 5, 0.4, 1)
    write_noise(tmp_path / "sub" / "noise.npy", index)
    loaded = np.load(tmp_path / "sub" / "noise.npy", allow_pickle=False)
    assert loaded.dtype == np.int64
    np.testing.assert_array_equal(loaded, index)
    np.testing.assert_array_equal(read_noise(tmp_path / "sub" / "noise.npy"), index)


def test_made_and_written_noise_have_the_same_sha256(pairs, tmp_path):
    made = make_noise(pairs, Noise(0.4))
    write_noise(tmp_path / "noise.npy", made.image_of)
    read = apply_noise_file(pairs, tmp_path / "noise.npy")
    assert made.provenance.noise.sha256 == read.provenance.noise.sha256 == index_sha256(made.image_of)
    assert read.image_of.tolist() == made.image_of.tolist()


def test_files_that_are_no_index_are_refused(pairs, tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_noise(tmp_path / "nothing.npy")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("0 1 2")
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("pickle.npy", "text.npy", "empty.npy"):
        with pytest.raises(DataError, match=name) as caught:
            read_noise(tmp_path / name)
        assert "unsafe" not in str(caught.value)
    np.savez(tmp_path / "two.npz", a=np.arange(3), b=np.arange(3))
    with pytest.raises(DataError, match="2 arrays"):
        read_noise(tmp_path / "two.npz")


def test_noise_is_not_added_twice(pairs):
    noisy = make_noise(pairs, Noise(0.2))
    with pytest.raises(TruepairError, match="have noise already"):
        make_noise(noisy, Noise(0.2))


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_impossible_ratios_are_refused(pairs, ratio):
    for protocol in ("caption", "image"):
        with pytest.raises(TruepairError, match="between 0 and 1"):
            make_noise(pairs, Noise(ratio, protocol=protocol))
