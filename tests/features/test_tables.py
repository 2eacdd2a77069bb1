import json

import polars as pl
import pytest

from truepair.errors import DataError
from truepair.features.tables import Problem, find_columns, read_rows, usable_captions


def rows_of(path):
    names, rows = read_rows(path)
    return names, list(rows)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'path,text\na.png,"a dog, running"\nb.png,a cat\n'),
        ("t.csv", 'path;text\r\na.png;"a dog, running"\r\nb.png;a cat\r\n'),
        ("t.tsv", "path\ttext\na.png\ta dog, running\nb.png\ta cat"),
        ("t.txt", 'path|text\na.png|"a dog, running"\nb.png|a cat\n'),
        ("t.csv", '\ufeffpath,text\ra.png,"a dog, running"\rb.png,a cat\r'),
        (
            "t.jsonl",
            '{"path": "a.png", "text": "a dog, running"}\n\n{"path": "b.png", "text": "a cat"}\n',
        ),
    ],
)
def test_every_kind_of_table_says_the_same(tmp_path, name, content):
    names, rows = rows_of(write(tmp_path / name, content))
    assert names == ["path", "text"]
    assert [row.values for row in rows] == [
        {"path": "a.png", "text": "a dog, running"},
        {"path": "b.png", "text": "a cat"},
    ]
    assert [row.number for row in rows] == [0, 1]


def test_parquet(tmp_path):
    pl.DataFrame({"path": ["a.png"], "text": [["one", "two"]]}).write_parquet(tmp_path / "t.parquet")
    _, rows = rows_of(tmp_path / "t.parquet")
    assert rows[0].values == {"path": "a.png", "text": ["one", "two"]}
    assert usable_captions(rows[0].values["text"]) == ["one", "two"]


def test_captions_over_several_lines_keep_the_count_of_lines(tmp_path):
    path = write(tmp_path / "t.csv", 'path,text\na.png,"one\ntwo"\nb.png,three\n')
    _, rows = rows_of(path)
    assert [row.place for row in rows] == ["line 2", "line 4"]


def test_broken_rows_have_their_problem_and_the_others_stay(tmp_path):
    path = write(tmp_path / "t.csv", "path,text\na.png,one, two\nb.png\nc.png,three\n")
    _, rows = rows_of(path)
    assert rows[0].problem.reason == "too many cells"
    assert rows[1].values == {"path": "b.png"}
    assert rows[2].values == {"path": "c.png", "text": "three"}
    path = write(tmp_path / "t.jsonl", '{"path": "a"\n[1]\n{"path": "c.png", "text": "three"}\n')
    _, rows = rows_of(path)
    assert [row.problem.reason if row.problem else None for row in rows] == [
        "row is not JSON",
        "row is not JSON",
        None,
    ]


def test_a_quotation_mark_that_is_never_closed_does_not_swallow_the_table(tmp_path):
    path = write(tmp_path / "t.csv", 'path,text\na.png,"one\n' + "b.png,two\n" * 200)
    _, rows = read_rows(path)
    with pytest.raises(DataError, match=r"t\.csv: line 2: .*quotation mark"):
        list(rows)


def test_one_caption_in_another_encoding_costs_one_caption(tmp_path):
    path = write(tmp_path / "t.csv", b"path,text\na.png,caf\xe9\nb.png,caf\xc3\xa9\n")
    _, rows = rows_of(path)
    first, second = (usable_captions(row.values["text"])[0] for row in rows)
    assert first.reason == "caption is not UTF-8"
    assert second == "café"


@pytest.mark.parametrize(
    ("content", "match"),
    [("", "empty"), ("path,text\n".encode("utf-16"), "UTF-16")],
)
def test_tables_that_cannot_be_read(tmp_path, content, match):
    with pytest.raises(DataError, match=match):
        read_rows(write(tmp_path / "t.csv", content))
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(write(tmp_path / "t.parquet", b"PAR1 no"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("  a \n dog\t", ["a dog"]),
        ("a\u2028dog\x00", ["a dog"]),
        (b"a dog", ["a dog"]),
        (["a", "b"], ["a", "b"]),
        ("", "empty caption"),
        (" \u00a0\n", "empty caption"),
        (None, "empty caption"),
        (float("nan"), "empty caption"),
        ([], "empty caption"),
        (7, "not a caption"),
        ({"raw": "a"}, "not a caption"),
        (json.loads('"\\ud800"'), "caption is not UTF-8"),
        (b"caf\xe9", "caption is not UTF-8"),
    ],
)
def test_captions_are_usable_or_have_a_reason(value, expected):
    captions = usable_captions(value)
    if isinstance(expected, str):
        assert [type(caption) for caption in captions] == [Problem]
        assert captions[0].reason == expected
    else:
        assert captions == expected


def test_columns_are_found_by_their_usual_names(tmp_path):
    columns = find_columns(tmp_path, ["ID", "Image", "Caption", "split"], None, None, None)
    assert (columns.path, columns.text, columns.split, columns.pair_id) == ("Image", "Caption", "split", None)
    columns = find_columns(tmp_path, ["image", "path", "text", "alt"], "image", "alt", None)
    assert (columns.path, columns.text, columns.split) == ("image", "alt", None)


def test_unknown_columns_name_the_remedy(tmp_path):
    with pytest.raises(DataError, match="--text-column"):
        find_columns(tmp_path, ["path", "foo"], None, None, None)
    with pytest.raises(DataError, match=r"no column 'bar'.*path, foo"):
        find_columns(tmp_path, ["path", "foo"], None, "bar", None)
