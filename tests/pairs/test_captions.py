import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truepair.errors import DataError
from truepair.pairs.captions import read_captions


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="train_caps.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


@pytest.mark.parametrize(
    "content",
    [
        "a dog\nzwei Hunde\n",
        "a dog\nzwei Hunde",
        "a dog\r\nzwei Hunde\r\n",
        "\ufeffa dog\nzwei Hunde\n",
        "  a dog \t\n zwei Hunde\n",
    ],
)
def test_line_ends_and_marks_do_not_matter(write, content):
    captions = read_captions(write(content))
    assert captions.texts == ["a dog", "zwei Hunde"]
    assert list(captions.lines) == [1, 2]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_line_feeds_end_a_caption(write, separator):
    captions = read_captions(write(f"one{separator}caption\nanother\n"))
    assert captions.texts == [f"one{separator}caption", "another"]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff")), min_size=1)
)
def test_whatever_is_written_comes_back_stripped(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("captions") / "caps.txt"
    path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    assert read_captions(path).texts == [text.strip() for text in texts]


def test_latin_1_is_named_with_its_line_and_a_remedy(write):
    path = write("a dog\nein Hund\nun chien mang\xe9\n".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        read_captions(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "line 3" in message
    assert "iconv -f Latin-1 -t UTF-8" in message


def test_utf_16_is_recognised(write):
    with pytest.raises(DataError, match="UTF-16"):
        read_captions(write("a dog\n".encode("utf-16")))


def test_an_empty_caption_is_named_with_its_line(write):
    captions = read_captions(write("a dog\n \u00a0 \na cat\n"))
    assert captions.texts == ["a dog", "", "a cat"]
    with pytest.raises(DataError, match=r"line 2: the caption is empty.*--skip-empty"):
        captions.check_words()


def test_a_missing_file_is_an_error_for_people(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_captions(tmp_path / "train_caps.txt")


def test_columns_are_an_id_and_a_caption(write):
    captions = read_captions(write("17\ta dog , running\textra\n18\t a cat \n", "train_caps.tsv"))
    assert captions.texts == ["a dog , running", "a cat"]
    assert captions.ids == ["17", "18"]
    assert list(captions.lines) == [1, 2]


def test_columns_are_read_as_the_published_loader_reads_them(write):
    content = '1\t"a ""big"" dog"\n2\tsays "hi" to\n3\t"two\nlines"\n4\ta\u2028b\n'
    captions = read_captions(write(content, "x_caps.tsv"))
    expected = [row[1].strip() for row in csv.reader(io.StringIO(content), delimiter="\t")]
    assert captions.texts == expected
    assert list(captions.lines) == [1, 2, 3, 5]


def test_columns_without_a_tab_are_named(write):
    with pytest.raises(DataError, match="line 2: there is no tab"):
        read_captions(write("1\ta dog\n2 a cat\n", "x_caps.tsv"))


def test_an_empty_second_column_is_an_empty_caption(write):
    captions = read_captions(write("1\ta dog\n\n3\t\n", "x_caps.tsv"))
    assert captions.texts == ["a dog", "", ""]
    with pytest.raises(DataError, match="line 2"):
        captions.check_words()


@pytest.mark.parametrize("more", [0, 2, 30_000])
def test_a_quotation_mark_that_is_never_closed_is_explained(write, more):
    content = '0\ta "big" dog\n1\t"a dog\n' + "2\ta cat\n" * more
    with pytest.raises(DataError, match=r"line 2: .*quotation mark"):
        read_captions(write(content, "x_caps.tsv"))


@pytest.mark.parametrize("name", ["train_caps.txt", "train_caps.tsv"])
def test_a_file_without_captions_is_refused(write, name):
    with pytest.raises(DataError, match=f"{name}.*no captions"):
        read_captions(write(b"", name))
