"""What is said of files and images that cannot be read: what they are, by which limit, and what to do."""

from __future__ import annotations

import codecs
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import png_of_declared_size, red_png, write_jsonl
from PIL import Image
from typer.testing import CliRunner

from mmrl.cli.dataset import app
from mmrl.data.formats import read_rows
from mmrl.data.ingest import validate
from mmrl.data.pixels import encode_image
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError, NotFoundError


def faults(file: Path) -> list[str]:
    return [str(fault) for fault in validate(file).faults]


@pytest.mark.parametrize("text", ["sep=;\r\nprompt;answer\r\na;1\r\n", '"sep=;"\nprompt;answer\na;1\n'])
def test_the_separator_line_of_excel_is_no_header(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, newline="")
    assert list(read_rows(file)) == [RawRow(3, {"prompt": "a", "answer": "1"}, "a.csv")]


@pytest.mark.parametrize(("mark", "encoding"), [(codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")])
def test_a_table_in_utf_16_is_read(tmp_path: Path, mark: bytes, encoding: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(mark + "prompt\tanswer\nä\t1\n".encode(encoding))
    assert list(read_rows(file)) == [RawRow(2, {"prompt": "ä", "answer": "1"}, "a.csv")]
    file.write_bytes(mark + "prompt,answer\na,1\n".encode(encoding) + b"x")
    with pytest.raises(DataError, match="not UTF-16 text near line"):
        list(read_rows(file))


@pytest.mark.parametrize("cell", ["['a.png', 'b.png']", "a.png;b.png", "a.png|b.png"])
def test_several_paths_in_a_cell_are_to_be_a_json_list(tmp_path: Path, cell: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f'prompt,images\n<image>a,"{cell}"\n')
    assert 'as a JSON list: ["a.png", "b.png"]' in faults(file)[0]


def test_json_over_several_lines_named_jsonl_is_one_error(tmp_path: Path) -> None:
    for rows in ([{"prompt": "a"}, {"prompt": "b"}], {"prompt": "a"}):
        file = tmp_path / "a.jsonl"
        file.write_text(json.dumps(rows, indent=2))
        with pytest.raises(DataError, match=r"one JSON list or object, .*name the file \.json"):
            validate(file)


@pytest.mark.parametrize("text", ['[{"prompt": "a"},\n{"prompt": "b"}]', '[ {"prompt": "a"}]'])
def test_a_json_list_named_jsonl_is_one_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(text)
    with pytest.raises(DataError, match=r"one JSON list or object"):
        validate(file)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_json_in_utf_16_is_named_by_its_encoding(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text('{"prompt": "a"}', encoding="utf-16")
    with pytest.raises(DataError, match="UTF-16 text by its byte-order mark"):
        validate(file)


def test_an_empty_row_and_a_number_beyond_floats_are_named_as_written(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{}\n{"prompt": "a", "x": 1e999}\n')
    empty, beyond = faults(file)
    assert "the row is empty" in empty
    assert "holds 1e999 (beyond" in beyond
    table = tmp_path / "a.json"
    table.write_text('[{"prompt": "a", "x": -1e999}]')
    [row] = read_rows(table)
    assert isinstance(row, RowError)
    assert "-1e999" in row.message


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'<?xml version="1.0"?><svg/>', "SVG"),
        (b"<svg xmlns='x'/>", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"\n<!DOCTYPE html><html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"\x01\x02\x03", "begin with 01 02 03"),
    ],
)
def test_bytes_that_are_no_image_are_named_by_what_they_look_like(data: bytes, kind: str) -> None:
    with pytest.raises(DataError, match=kind) as caught:
        encode_image(data)
    assert "0x" not in str(caught.value)
    assert "BytesIO" not in str(caught.value)


def test_a_decompression_bomb_is_told_with_its_size_and_the_limit() -> None:
    with pytest.raises(DataError, match=r"60000x60000 = 3,600,000,000 pixels; at most 89,478,485 .* smaller"):
        encode_image(png_of_declared_size(60000, 60000))


def test_an_aspect_ratio_just_over_the_limit_is_not_rounded_to_it() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (401, 2)).save(buffer, format="PNG")
    with pytest.raises(DataError, match=r"aspect ratio of 200\.5; .* at most 200"):
        encode_image(buffer.getvalue())


def test_an_archive_in_an_archive_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("inner.zip", b"PK\x03\x04")
        archive.writestr("readme.txt", b"x")
    with pytest.raises(DataError, match=r"it holds inner\.zip: unpack it"):
        validate(file)


def test_rows_beyond_the_end_are_told(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", {"prompt": "a"}, {"prompt": "b"})
    result = CliRunner().invoke(app, ["show", str(file), "--rows", "100:200"])
    assert isinstance(result.exception, NotFoundError)
    assert "has 2 row(s), the last is row 1; none is in 100:200" in str(result.exception)


def test_the_twenty_first_bad_row_says_how_to_see_it(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", *[{"prompt": "a", "img": f"{red_png}"}] * 22)
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert "… and 2 more; --json lists all" in result.output


def test_text_in_a_table_that_is_no_utf_8_is_an_error_of_its_row_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    damaged = pa.array([b"good", b"\x83bad", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"prompt": damaged}), file)
    first, second, third = read_rows(file)
    assert (first, third) == (RawRow(1, {"prompt": "good"}, "a.parquet"), RawRow(3, {"prompt": "fine"}, "a.parquet"))
    assert isinstance(second, RowError)
    assert "no UTF-8" in second.message
