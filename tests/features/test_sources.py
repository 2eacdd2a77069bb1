import io
import json
import tarfile
from pathlib import Path

import pytest

from truepair.errors import DataError
from truepair.features.sources import Names, read_source

from .conftest import encoded, photo


def tar_of(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def read(source, **names):
    return read_source(source, Names(**names))


def reasons(index):
    return [reject.reason for reject in index.rejects]


def test_pictures_are_listed_once_and_captions_in_order(tmp_path):
    (tmp_path / "captions.csv").write_text("path,text\na.png,one\nb.png,two\n./a.png,three\n")
    index = read(tmp_path)
    assert index.image_ids == ["a.png", "b.png"]
    assert [(c.pair_id, c.picture, c.text) for c in index.captions] == [
        ("row-0", 0, "one"),
        ("row-1", 1, "two"),
        ("row-2", 0, "three"),
    ]
    assert index.places[0].path == str(tmp_path / "a.png")


def test_lists_of_captions_and_own_ids(tmp_path):
    rows = [
        {"pair_id": "x", "path": "a.png", "text": ["one", "", "two"], "split": "test"},
        {"path": "b.png", "text": "three", "split": "train"},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = read(tmp_path / "t.jsonl")
    assert [(c.pair_id, c.text, c.split) for c in index.captions] == [
        ("x.0", "one", "test"),
        ("x.2", "two", "test"),
        ("row-1", "three", "train"),
    ]
    assert [(reject.what, reject.reason, reject.pair_ids) for reject in index.rejects] == [
        ("caption", "empty caption", ("x.1",))
    ]


def test_rows_without_a_usable_path_are_rejected_with_all_their_pairs(tmp_path):
    rows = [
        {"path": None, "text": ["one", "two"]},
        {"path": "", "text": "three"},
        {"path": "https://example.org/a.png", "text": "four"},
        {"path": "\ud800.png", "text": "five"},
        {"path": "a.png", "text": "six"},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = read(tmp_path)
    assert reasons(index) == ["no picture named", "no picture named", "not a file", "name is not UTF-8"]
    assert index.rejects[0].pair_ids == ("row-0.0", "row-0.1")
    assert [c.text for c in index.captions] == ["six"]


def test_paths_are_taken_from_the_folder_where_the_table_lies_elsewhere(tmp_path, pictures_in):
    pictures_in(tmp_path / "pictures", 1)
    (tmp_path / "names.csv").write_text(f"path,text\nphoto-0.png,one\n{'x' * 300},two\na\0.png,three\n")
    index = read(tmp_path / "pictures", captions=tmp_path / "names.csv")
    assert index.places[0].path == str(tmp_path / "pictures" / "photo-0.png")
    assert len(index.captions) == 3  # names that no file can have are set aside when they are opened


def test_which_table_is_asked_when_there_are_several(tmp_path):
    (tmp_path / "one.csv").write_text("path,text\na.png,one\n")
    (tmp_path / "two.csv").write_text("path,text\na.png,two\n")
    with pytest.raises(DataError, match=r"--captions one\.csv"):
        read(tmp_path)
    assert read(tmp_path, captions=Path("two.csv")).captions[0].text == "two"
    (tmp_path / "captions.csv").write_text("path,text\na.png,three\n")
    assert read(tmp_path).captions[0].text == "three"


def test_a_folder_without_a_table_names_the_remedy(tmp_path):
    with pytest.raises(DataError, match=r"captions\.csv"):
        read(tmp_path)
    with pytest.raises(DataError, match="nothing at this path"):
        read(tmp_path / "absent")


def test_ids_that_repeat_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("pair_id,path,text\nx,a.png,one\nx,b.png,two\n")
    with pytest.raises(DataError, match=r"line 3: pair_id 'x'"):
        read(tmp_path)


def test_tar_samples(tmp_path):
    picture = encoded(photo(0), "PNG")
    tar_of(
        tmp_path / "shard-0.tar",
        {
            "s/0001.png": picture,
            "s/0001.txt": b"one\n",
            "s/0002.jpg": picture,
            "s/0002.json": json.dumps({"caption": ["two", "three"]}).encode(),
            "s/0003.txt": b"no picture",
            "s/0004.png": picture,
            "s/0005.png": picture,
            "s/0005.json": b"{broken",
            "s/0006.seg.png": picture,
            "s/0006.txt": b"caf\xe9",
            "s/._0001.png": b"apple",
        },
    )
    tar_of(tmp_path / "shard-1.tar", {"s/0001.png": picture, "s/0001.txt": b"four"})
    index = read(tmp_path)
    assert [(c.pair_id, c.text) for c in index.captions] == [
        ("shard-0.tar/s/0001", "one"),
        ("shard-0.tar/s/0002.0", "two"),
        ("shard-0.tar/s/0002.1", "three"),
        ("shard-1.tar/s/0001", "four"),
    ]
    assert index.image_ids == [
        "shard-0.tar/s/0001.png",
        "shard-0.tar/s/0002.jpg",
        "shard-1.tar/s/0001.png",
    ]
    assert all(place.read() == picture for place in index.places)
    assert reasons(index) == ["no picture named", "empty caption", "empty caption", "caption is not UTF-8"]


def test_damaged_tar_files_lose_no_sample_silently(tmp_path):
    picture = encoded(photo(0), "PNG")
    members = {
        f"{k}.{kind}": picture if kind == "png" else b"text" for k in range(6) for kind in ("png", "txt")
    }
    whole = tar_of(tmp_path / "whole.tar", members).read_bytes()
    assert reasons(read(tmp_path / "whole.tar")) == []
    with tarfile.open(tmp_path / "whole.tar") as archive:
        starts = [member.offset for member in archive]
    cases = {
        "cut-in-data.tar": whole[: starts[6] + 700],
        "cut-at-header.tar": whole[: starts[6]],
        "bad-header.tar": whole[: starts[6]] + b"\xff" * 512 + whole[starts[6] + 512 :],
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        index = read(tmp_path / name)
        assert "damaged tar file" in reasons(index), name
        assert [c.pair_id for c in index.captions] == [f"{name}/{k}" for k in range(3)], name


def test_what_is_no_tar_file(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"\x1f\x8b" + b"compressed" * 100)
    with pytest.raises(DataError, match="unpack it first"):
        read(tmp_path)
