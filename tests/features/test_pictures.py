import io
import os

import numpy as np
import pytest
from PIL import Image

from truepair.features.pictures import MOST_SIDE, PictureError, Place, open_picture


def saved(picture, kind="PNG", **options):
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def pixels(data, name=""):
    return np.asarray(open_picture(data, name)[0])


def test_broken_pictures_are_refused_with_their_reason(broken):
    for name, (data, reasons) in broken.items():
        if not data:
            continue  # refused when the file is read
        with pytest.raises(PictureError) as error:
            open_picture(data, name)
        assert error.value.reason in reasons.split("|"), name
        assert error.value.detail


def test_odd_pictures_become_rgb_and_are_noted(odd):
    for name, (data, note) in odd.items():
        picture, notes = open_picture(data, name)
        assert picture.mode == "RGB", name
        assert notes == ((note,) if note else ()), name


def test_exif_orientation_turns_the_picture():
    wide = Image.new("RGB", (8, 4), "black")
    wide.paste("white", (0, 0, 4, 4))  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise: the left half comes to the top
    turned = pixels(saved(wide, exif=exif))
    assert turned.shape == (8, 4, 3)
    assert turned[:4].min() == 255
    assert turned[4:].max() == 0


def test_broken_exif_does_not_cost_the_picture():
    data = saved(Image.new("RGB", (8, 8), "red"), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert open_picture(data)[0].size == (8, 8)


def test_transparency_lies_on_white():
    half = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    half.putpixel((1, 0), (0, 0, 0, 0))
    assert pixels(saved(half)).tolist() == [[[255, 0, 0], [255, 255, 255]]]
    palette = half.convert("RGB").convert("P")
    data = saved(palette, transparency=palette.getpixel((1, 0)))
    assert pixels(data).tolist() == [[[255, 0, 0], [255, 255, 255]]]


def test_sixteen_bits_keep_their_brightness():
    values = np.array([[0, 200, 32768, 65535]], dtype=np.uint16)
    assert pixels(saved(Image.fromarray(values)))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_a_dark_sixteen_bit_picture_stays_dark():
    assert pixels(saved(Image.fromarray(np.full((2, 2), 200, dtype=np.uint16)))).max() == 1


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(data)[0, 0].tolist() == [255, 0, 0]


def test_large_pictures_are_scaled_down_to_what_is_needed():
    picture, _ = open_picture(saved(Image.new("L", (5000, 10))))
    assert picture.size == (MOST_SIDE, 4)


def test_places_that_hold_no_picture(tmp_path):
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "zero.jpg").touch()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    expected = {
        "folder.jpg": "not a file",
        "pipe.jpg": "not a file",
        "zero.jpg": "empty file",
        "absent.jpg": "missing file",
        "x" * 300: "unreadable file",
        "nul\0.jpg": "unreadable file",
        "loop.jpg": "unreadable file",
    }
    for name, reason in expected.items():
        with pytest.raises(PictureError) as error:
            Place(str(tmp_path / name)).read()
        assert error.value.reason == reason, name


def test_a_stretch_of_a_file(tmp_path):
    (tmp_path / "shard.tar").write_bytes(b"0123456789")
    assert Place(str(tmp_path / "shard.tar"), 3, 4).read() == b"3456"
