"""Rows of every file format, and what is said of damaged ones."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mmrl.data.formats import read_rows
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError, NotFoundError


def rows_of(path: Path, content: bytes) -> list[RawRow | RowError]:
    path.write_bytes(content)
    return list(read_rows(path))


def test_d14_byte_order_mark_changes_neither_rows_nor_columns(tmp_path: Path) -> None:
    lines = b'{"m":[{"a":1}]}\n{"m":[{"b":2}]}\n'
    plain = rows_of(tmp_path / "a.jsonl", lines)
    assert rows_of(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + lines) == plain
    assert plain == [RawRow(1, {"m": [{"a": 1}]}), RawRow(2, {"m": [{"b": 2}]})]


def test_d15_cosmetic_damage_keeps_the_physical_line_numbers(tmp_path: Path) -> None:
    content = b'{"n":1}\r\n{"n":2}\r\n\r\n   \r\n{"n":5}\r\n{"n":}\r\n{"n":7}'
    rows = rows_of(tmp_path / "a.jsonl", content)
    assert [row.values["n"] for row in rows if isinstance(row, RawRow)] == [1, 2, 5, 7]
    assert [row.number for row in rows if isinstance(row, RawRow)] == [1, 2, 5, 7]
    (error,) = [row for row in rows if isinstance(row, RowError)]
    assert (error.file, error.row) == ("a.jsonl", 6)
    assert error.message == "not valid JSON: Expecting value at column 6; each line is one object"


def test_line_separators_inside_text_do_not_end_a_line(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.jsonl", '{"t":"a\u2028b\x85c"}'.encode()) == [RawRow(1, {"t": "a\u2028b\x85c"})]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_d17_number_that_is_not_finite_is_a_row_error(tmp_path: Path, number: str, suffix: str) -> None:
    text = f'{{"answer": [1, {number}]}}'
    content = text if suffix == "jsonl" else f'[{text}, {{"answer": 1}}]'
    first = rows_of(tmp_path / f"a.{suffix}", content.encode())[0]
    assert isinstance(first, RowError)
    assert (first.row, first.field) == (1, "answer[1]")
    assert "no number that JSON allows" in first.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[1, 2]", "each line is one JSON object; got a list of 2"),
        (b"\xff\xfe", "not UTF-8 text (byte 0 of the line)"),
        (b'{"t": "\\ud800"}', "half of a surrogate pair"),
        (b'{"n": ' + b"9" * 5000 + b"}", "JSON that cannot be read"),
        (b"[" * 100_000, "JSON that cannot be read"),
        (b'{"t":' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 64 levels deep"),
    ],
)
def test_damaged_line_is_an_error_of_its_row_alone(tmp_path: Path, line: bytes, message: str) -> None:
    first, second = rows_of(tmp_path / "a.jsonl", line + b'\n{"n": 2}\n')
    assert isinstance(first, RowError)
    assert message in first.message
    assert second == RawRow(2, {"n": 2})


def test_json_list_counts_rows_from_one(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "a.json", b'\xef\xbb\xbf[{"n": 1}, 5]')
    assert rows == [RawRow(1, {"n": 1}), RowError("a.json", 2, "", "each row is one JSON object; got 5")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"n": 1}', "one list of objects"),
        (b"5", "one list of objects; got 5"),
        (b'{"a": [{}], "b": [{}]}', "an object with the lists a and b"),
        (b'[{"n": 1},\n {"n": }]', "a.json:2: not valid JSON: Expecting value at column 8"),
        (b'[{"n": 1}] x', "a.json:1: not valid JSON: more text after the end of the data at column 12"),
        (b'[{"n": 1}', "a.json:1: not valid JSON: expecting ','"),
        (b'[{"n": 1},]', "a comma before ]"),
        (b"", "one list of objects|not valid JSON"),
    ],
)
def test_json_of_another_shape_is_refused_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(tmp_path / "a.json", content)


def test_csv_row_is_the_line_that_it_begins_on(tmp_path: Path) -> None:
    content = b'file_name,question,answer\na.png,"two\nlines",3\nb.png,x,\nc.png,y\n'
    assert rows_of(tmp_path / "a.csv", content) == [
        RawRow(2, {"file_name": "a.png", "question": "two\nlines", "answer": "3"}),
        RawRow(4, {"file_name": "b.png", "question": "x", "answer": None}),
        RowError("a.csv", 5, "", "has 2 values, the header names 3 columns"),
    ]


def test_csv_header_must_name_each_column_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.csv:1: the header names column 'q' twice"):
        rows_of(tmp_path / "a.csv", b"q,q\n1,2\n")


def test_d23_parquet_reads_wide_and_dictionary_types_as_plain_ones(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": pa.array(["a", "b"], pa.large_string()),
            "images": pa.array([[b"x"], None], pa.large_list(pa.large_binary())),
            "source": pa.array(["s", "s"]).dictionary_encode(),
            "when": pa.array([datetime.date(2026, 1, 2), None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == [
        RawRow(1, {"prompt": "a", "images": [b"x"], "source": "s", "when": datetime.date(2026, 1, 2)}),
        RawRow(2, {"prompt": "b", "images": None, "source": "s", "when": None}),
    ]


def test_parquet_rows_are_counted_over_batches_and_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": list(range(150))}), tmp_path / "a.parquet", row_group_size=70)
    rows = list(read_rows(tmp_path / "a.parquet"))
    assert [(row.number, row.values["n"]) for row in rows if isinstance(row, RawRow)] == [
        (index + 1, index) for index in range(150)
    ]


def test_what_is_no_parquet_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.parquet: not a Parquet file"):
        rows_of(tmp_path / "a.parquet", b"hello world, this is text")


def test_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'.xls'; allowed are .jsonl, .json, .parquet, .csv, .tsv, .arrow"):
        rows_of(tmp_path / "a.xls", json.dumps({}).encode())


def test_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no.jsonl does not exist"):
        list(read_rows(tmp_path / "no.jsonl"))
