import stat

import pytest

from truepair.files import replaced_when_written


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "file.bin"
    with replaced_when_written(path) as file:
        file.write(b"half")
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_an_error_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")

    def fail():
        with replaced_when_written(path) as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.bin"]
