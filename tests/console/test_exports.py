"""Exports: what a file holds, what is left out of it, and that nothing in it is obeyed by what opens it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from homes import NASTY
from PIL import Image

from console.services import export_report, exports
from console.services.exports import KINDS, Export, Record, make

WEIRD = "\u202eback\x00\x1b[2J\ud800 שלום"


def _export(*records: Record, total: int | None = None, shared: tuple[str, ...] = ()) -> Export:
    return Export("digits 9/1", "A <b>title</b>", lambda: records, total or len(records), {"run": NASTY}, shared)


def _rows(*values: object) -> tuple[Record, ...]:
    return tuple(Record({"value": value}) for value in values)


def test_a_spreadsheet_takes_no_text_for_a_formula_and_numbers_stay_numbers() -> None:
    nasty = ["=1+1", "+1", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", " =1", "\uff1d1", "a=b", -0.5, 3, None, "", True]
    file = make(_export(*_rows(*nasty)), "csv")
    rows = [row[0] if row else "" for row in csv.reader(io.StringIO(file.data.decode("utf-8-sig")))]
    assert rows[1:] == [
        *["'=1+1", "'+1", "'-cmd|' /C calc'!A0", "'@SUM(A1)", "'\t=1", "' =1", "'\uff1d1", "a=b"],
        *["-0.5", "3", "", "", "True"],
    ]
    assert file.told == "all 13 rows"
    assert file.file_name == "digits-9-1.csv"


def test_jsonl_and_parquet_hold_texts_as_they_are_and_missing_values_as_missing() -> None:
    records = _rows({"a": [1]}, None, f"{NASTY}\n\u202e", float("nan"))
    lines = [json.loads(line)["value"] for line in make(_export(*records), "jsonl").data.decode().splitlines()]
    assert lines == [{"a": [1]}, None, f"{NASTY}\n\u202e", None]
    table = pq.read_table(io.BytesIO(make(_export(*records), "parquet").data))
    assert table["value"].to_pylist()[:3] == ['{"a": [1]}', None, f"{NASTY}\n\u202e"]
    numbers = pq.read_table(io.BytesIO(make(_export(*_rows(1, None, 2.5)), "parquet").data))
    assert numbers["value"].to_pylist() == [1.0, None, 2.5]


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_keeps_a_file_from_being_made(kind: exports.Kind) -> None:
    assert make(_export(*_rows(WEIRD, "x" * 1_000_000, 2**70)), kind).num_rows == 3
    assert make(Export("e", "none", list, 0), kind).num_rows == 0


def test_a_report_shows_text_and_runs_none_of_it(tmp_path: Path) -> None:
    Image.new("RGB", (2000, 1000), "red").save(tmp_path / "large.png")
    records = [
        Record(
            {"prompt": NASTY, "response": text, "reward": reward}, NASTY, (tmp_path / "large.png", tmp_path / "gone")
        )
        for text, reward in ((f"{NASTY}{WEIRD}", 0.25), ("y" * 1_000_000, None))
    ]
    page = make(_export(*records, shared=("prompt",)), "html").data.decode()
    assert "<img src=x" not in page
    assert "<script" not in page.lower()
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 3
    assert not {"\u202e", "\x00", "\x1b"} & set(page)
    assert "שלום" in page
    assert page.count("data:image/jpeg;base64,") == 1, "once for the section, not for each row"
    assert "image 2 cannot be shown" in page
    assert "(1,000,000 characters)" in page
    assert len(page) < 200_000
    assert '<span class="none">none</span>' in page
    assert "http://" not in page.replace("http-equiv", "").split("<main>")[0]


def test_what_is_left_out_for_its_size_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exports, "MAX_BYTES", 4000)
    file = make(_export(*_rows("x" * 1500, "y" * 1500, "z" * 1500), total=3), "jsonl")
    assert (file.num_rows, file.told) == (2, "the first 2 of 3 rows; more would make it too large")
    Image.effect_noise((64, 64), 90).save(tmp_path / "noise.png")
    monkeypatch.setattr(export_report, "MAX_IMAGE_BYTES", 10)
    file = make(_export(Record({"a": 1}, "s", (tmp_path / "noise.png",))), "html")
    assert "1 image was left out for the report's size" in file.told
    assert "image 1 was left out" in file.data.decode()
