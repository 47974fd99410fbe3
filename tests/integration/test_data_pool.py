"""Rows read in several processes: in order, with no row that ends or stops the reading."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pool_mischief
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mmrl.data.images import ImageStore
from mmrl.data.ingest import add_dataset, validate
from mmrl.data.reading import ROWS_READ_HERE, read_all
from mmrl.data.row_pool import RowPool
from mmrl.data.row_worker import ReadRow
from mmrl.data.rows import RawRow, RowError
from mmrl.data.sources import Source, find_sources, read_raw
from mmrl.errors import MmrlError

GREY = (7, 7, 7)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def png(colour: tuple[int, int, int], side: int = 8) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def write_rows(path: Path, colours: dict[int, tuple[int, int, int]], count: int) -> Source:
    """`count` rows with one image each, grey but where `colours` says otherwise; rows are counted from 1."""
    images = [[png(colours.get(row, GREY))] for row in range(1, count + 1)]
    prompts = [f"<image>row {row}" for row in range(1, count + 1)]
    pq.write_table(pa.table({"prompt": prompts, "images": images}), path)
    return find_sources(path)["train"]


def read(source: Source, add_image: Any, **options: Any) -> list[ReadRow | RowError]:
    with RowPool(source, add_image, workers=2, **options) as pool:
        return list(pool.read(read_raw(source)))


def test_results_come_in_order_and_are_those_of_one_process(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", {}, 203)
    results = read(source, ImageStore(tmp_path / "images").add)
    assert [each.row for each in results] == list(range(1, 204))
    assert results == list(read_all(source, ImageStore(tmp_path / "images").add, workers=0))


def test_a_row_that_kills_its_process_is_an_error_of_its_own(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", {5: pool_mischief.KILL, 41: pool_mischief.EXIT}, 80)
    results = read(source, pool_mischief.mischievous)
    bad = [each for each in results if isinstance(each, RowError)]
    assert [each.row for each in results] == list(range(1, 81))
    assert [error.row for error in bad] == [5, 41]
    assert "ended the process that read it (signal SIGSEGV)" in bad[0].message
    assert "ended the process that read it (exit code 3)" in bad[1].message


def test_a_row_that_hangs_is_given_up_at_its_deadline(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", {3: pool_mischief.HANG}, 70)
    results = read(source, pool_mischief.mischievous, deadline_s=1.0)
    (bad,) = [each for each in results if isinstance(each, RowError)]
    assert (bad.row, len(results)) == (3, 70)
    assert "took longer than 1 s to read" in bad.message


def test_what_nobody_foresaw_is_an_error_of_its_row(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", {2: pool_mischief.ODD}, 3)
    (bad,) = [each for each in read(source, pool_mischief.mischievous) if isinstance(each, RowError)]
    assert bad.row == 2
    assert "cannot be read (LookupError: nobody foresaw this)" in bad.message


def test_a_full_disk_ends_the_reading(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.parquet", {2: pool_mischief.FULL}, 3)
    with pytest.raises(MmrlError, match="No space left on device"):
        read(source, pool_mischief.mischievous)


def test_processes_that_cannot_start_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_rows(tmp_path / "a.parquet", {}, 3)
    monkeypatch.setattr("mmrl.data.row_pool._BOOT", "raise SystemExit('no such interpreter')")
    with pytest.raises(MmrlError, match="end before they begin one: no such interpreter"):
        read(source, pool_mischief.mischievous)


def test_rows_of_many_megabytes_pass_both_ways(tmp_path: Path) -> None:
    source = Source("train", tmp_path / "a.jsonl", tmp_path)
    rows = [RawRow(number, {"prompt": "x" * 3_000_000, "answer": str(number)}) for number in range(1, 9)]
    with RowPool(source, pool_mischief.mischievous, workers=2) as pool:
        results = list(pool.read(rows))
    assert [each.sample.answer for each in results if isinstance(each, ReadRow)] == list("12345678")


def test_few_rows_are_in_flight(tmp_path: Path) -> None:
    source = Source("train", tmp_path / "a.jsonl", tmp_path)
    taken = 0

    def rows() -> Any:
        nonlocal taken
        for number in range(1, 100_001):
            taken = number
            yield RawRow(number, {"prompt": f"row {number}"})

    with RowPool(source, pool_mischief.mischievous, workers=2) as pool:
        assert len(list(islice(pool.read(rows()), 10))) == 10
    assert taken < 1000


def test_large_sets_are_read_by_clean_processes_that_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch  # noqa: F401  (this process has it; those that read must not)

    (tmp_path / "processes").mkdir()
    monkeypatch.setenv("MMRL_TEST_PROCESSES", str(tmp_path / "processes"))
    source = write_rows(tmp_path / "a.parquet", {}, ROWS_READ_HERE + 80)
    assert len(list(read_all(source, pool_mischief.note_process, workers=2))) == ROWS_READ_HERE + 80
    seen = {path.name.split("-")[0]: path.name.split("-")[1] for path in (tmp_path / "processes").iterdir()}
    assert seen.pop(str(os.getpid())) == "True"
    assert list(seen.values()) == ["False", "False"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in seen)


def test_a_script_without_a_main_guard_can_load_a_large_set(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", {}, ROWS_READ_HERE + 5)
    script = tmp_path / "script.py"
    script.write_text("import mmrl\nprint(len(mmrl.load_dataset('a.parquet')))\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == (f"{ROWS_READ_HERE + 5}\n", 0), done.stderr


def test_bad_rows_of_a_large_set_keep_their_physical_lines(tmp_path: Path) -> None:
    image = base64.b64encode(png(GREY)).decode()
    lines = [f'{{"prompt": "<image>{row}", "images": ["{image}"]}}' for row in range(1, 151)]
    lines[99] = '{"prompt": "<image>", "images": []}'
    lines[120] = ""
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    survey = validate(path, workers=2)
    assert (survey.num_rows, survey.num_valid) == (149, 148)
    assert [(error.row, error.field) for error in survey.errors] == [(100, "prompt")]
    added = add_dataset(path, name="big", skip_bad=True, workers=2)
    assert added.info.num_rows == 148
    assert [error.row for error in added.skipped] == [100]
