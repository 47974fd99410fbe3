"""Registered data sets: whole or not at all, immutable, named by content."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from data_files import red_png, write_jsonl

from mmrl.data import ImageStore, load_dataset
from mmrl.data.export import export_samples
from mmrl.data.ingest import BadRowsError, add_dataset, validate
from mmrl.data.normalise import make_sample
from mmrl.data.registry import DatasetRegistry, register
from mmrl.data.rows import RowError
from mmrl.errors import ConflictError, DataError, MmrlError, NotFoundError
from mmrl.types import Message, Sample, TextPart


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Splits train (an image row and a text row) and test."""
    path = tmp_path / "d"
    write_jsonl(path / "train.jsonl", {"prompt": "<image>?", "images": ["a.png"], "answer": 1, "note": [1]}, ask("b"))
    write_jsonl(path / "test.jsonl", ask("c"))
    (path / "a.png").write_bytes(red_png())
    return path


def ask(text: str) -> dict[str, str]:
    return {"prompt": text, "answer": "x"}


def sample(text: str) -> Sample:
    return make_sample((Message("user", (TextPart(text),)),), "x", {"note": text})


def left_over(home: Path) -> list[str]:
    return [path.name for path in (home / "datasets").iterdir()]


def test_registered_samples_equal_those_of_the_source(folder: Path) -> None:
    before = datetime.now(UTC)
    info = add_dataset(folder, name="geo").info
    assert {name: split.num_rows for name, split in info.splits.items()} == {"test": 1, "train": 2}
    assert info.splits["train"].num_images == 1
    assert (info.num_rows, info.source, info.skipped) == (3, str(folder), 0)
    assert before <= info.created_at <= before + timedelta(minutes=1)
    loaded = load_dataset("geo@train")
    assert loaded.samples == load_dataset(folder / "train.jsonl").samples
    assert (loaded.name, loaded.split, loaded.version) == ("geo", "train", info.version)
    assert loaded.open_images(loaded[0])[0].size == (32, 32)


def test_loading_needs_neither_the_source_nor_its_images(folder: Path) -> None:
    add_dataset(folder, name="geo")
    for path in folder.iterdir():
        path.unlink()
    dataset = load_dataset("geo")
    assert dataset.open_images(dataset[0])[0].getpixel((0, 0)) == (255, 0, 0)


def test_same_content_gives_the_same_version_and_changes_nothing(folder: Path, home: Path) -> None:
    first = add_dataset(folder, name="geo").info
    assert add_dataset(folder, name="geo").info == first
    assert DatasetRegistry().versions("geo") == [first.version]
    assert left_over(home) == ["geo"]


def test_new_content_is_a_new_version_and_the_old_one_stays(tmp_path: Path) -> None:
    old = add_dataset(write_jsonl(tmp_path / "a.jsonl", ask("a")), name="q").info
    new = add_dataset(write_jsonl(tmp_path / "a.jsonl", ask("b")), name="q").info
    assert old.version != new.version
    assert load_dataset("q")[0].messages[0].text == "b"
    assert load_dataset(f"q:{old.version}@train")[0].messages[0].text == "a"
    with pytest.raises(NotFoundError, match=r"has no version 'ffffffffffffffff'; it has"):
        load_dataset("q:ffffffffffffffff")


def test_another_split_joins_those_that_are_there(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ask("a"))
    add_dataset(path, name="q")
    write_jsonl(path, ask("b"))
    info = add_dataset(path, name="q", split="test").info
    assert list(info.splits) == ["test", "train"]
    assert [load_dataset(f"q@{split}")[0].messages[0].text for split in info.splits] == ["b", "a"]


def test_bad_rows_are_refused_and_leave_nothing(tmp_path: Path, home: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ask("a"), ask(""), {"promt": "b"})
    with pytest.raises(BadRowsError, match=r"2 of 3 rows cannot be used; mend them, or leave them out with --skip-bad"):
        add_dataset(path, name="q")
    assert left_over(home) == []
    assert DatasetRegistry().all() == []


def test_bad_rows_are_left_out_when_asked_and_counted(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ask("a"), ask(""), ask("c"))
    added = add_dataset(path, name="q", skip_bad=True)
    assert added.skipped == (RowError("a.jsonl", 2, "prompt", "is empty: neither text nor image"),)
    assert (added.info.skipped, added.info.num_rows) == (1, 2)
    assert [each.messages[0].text for each in load_dataset("q")] == ["a", "c"]


def test_data_set_of_bad_rows_only_is_refused_even_then(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ask(""))
    with pytest.raises(DataError, match=r"split train has no rows; nothing was added"):
        add_dataset(path, name="q", skip_bad=True)


def test_failure_half_way_keeps_the_earlier_version(home: Path) -> None:
    first = register("q", {"train": [sample("a")]}, source="test")

    def breaking() -> Iterator[Sample]:
        yield sample("b")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"No space left"):
        register("q", {"train": [sample("c")], "test": breaking()}, source="test")
    assert DatasetRegistry().find("q") == first
    assert left_over(home) == ["q"]


def test_full_disk_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(MmrlError, match=r"cannot write .*: No space left on device; free some space"):
        register("q", {"train": [sample("a")]}, source="test")
    assert not DatasetRegistry().has("q")


def test_many_rows_are_read_by_range_in_order() -> None:
    info = register("q", {"train": (sample(str(index)) for index in range(2500))}, source="test")
    registry = DatasetRegistry()
    texts = [each.messages[0].text for each in registry.read(info, "train", start=998, stop=2002)]
    assert texts == [str(index) for index in range(998, 2002)]
    assert len(list(registry.read(info, "train"))) == 2500
    assert [each.messages[0].text for each in load_dataset("q", limit=3)] == ["0", "1", "2"]


@pytest.mark.parametrize("value", [float("nan"), b"bytes"])
def test_meta_that_is_no_json_is_refused(value: object) -> None:
    odd = make_sample((Message("user", (TextPart("a"),)),), None, {"x": value})
    with pytest.raises(DataError, match=r"its meta may hold JSON values only"):
        register("q", {"train": [odd]}, source="test")
    assert not DatasetRegistry().has("q")


def test_splits_that_are_added_at_the_same_time_are_all_kept() -> None:
    def add(split: str) -> None:
        register("q", {split: [sample(split)]}, source="test")

    splits = [f"split{index}" for index in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, splits))
    assert list(DatasetRegistry().find("q").splits) == splits


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 101])
def test_name_must_be_safe_as_a_folder(name: str) -> None:
    with pytest.raises(DataError, match=r"not a name for a data set"):
        register(name, {"train": [sample("a")]}, source="test")


def test_unknown_name_is_not_found_with_the_nearest() -> None:
    register("digits-which", {"train": [sample("a")]}, source="test")
    with pytest.raises(NotFoundError, match=r"nearest: digits-which"):
        load_dataset("digits-wich")
    with pytest.raises(NotFoundError, match=r"no data set 'digits-wich' is registered in .*; nearest: digits-which"):
        DatasetRegistry().find("digits-wich")
    with pytest.raises(NotFoundError, match=r"has no split 'tran'; it has train; nearest: train"):
        load_dataset("digits-which@tran")


def test_damaged_version_says_what_to_do(home: Path) -> None:
    info = register("q", {"train": [sample("a")]}, source="test")
    (home / "datasets" / "q" / info.version / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"train.parquet is damaged or missing .*; add the data set again"):
        load_dataset("q")


def test_validation_reports_everything_and_writes_nothing(folder: Path, home: Path) -> None:
    write_jsonl(folder / "test.jsonl", ask("b"), ask("c"), ask("c"), {"prompt": "d"}, {"prompt": "<image>"})
    survey = validate(folder)
    assert (survey.num_rows, survey.num_valid) == (7, 6)
    assert [(error.file, error.row, error.field) for error in survey.errors] == [("test.jsonl", 5, "prompt")]
    assert survey.warnings() == [
        "test: 1 row(s) repeat an earlier one (row 3)",
        "test: 1 row(s) have no answer (row 4)",
        "test and train share 1 row(s) (row test:1 is train:2)",
    ]
    assert not home.exists()


def test_export_reads_back_to_the_same_samples(folder: Path, tmp_path: Path) -> None:
    write_jsonl(
        folder / "test.jsonl",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a <image> tag"}]}], "file_name": None},
        {"prompt": "1+1", "messages": None, "answer": "2"},
    )
    add_dataset(folder, name="geo")
    originals = {split: load_dataset(f"geo@{split}") for split in ("train", "test")}
    out = tmp_path / "out"
    export_samples({split: data.samples for split, data in originals.items()}, out, store=ImageStore())
    assert {path.suffix for path in (out / "images").iterdir()} == {".png"}
    for split, original in originals.items():
        again = load_dataset(out, split=split, store=ImageStore(tmp_path / "other"))
        assert again.samples == original.samples
    with pytest.raises(ConflictError, match=r"exists already"):
        export_samples({}, out, store=ImageStore())


def test_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    clashing = make_sample((Message("user", (TextPart("a"),)),), None, {"answer": 1})
    with pytest.raises(DataError, match=r"its meta has the key 'answer'"):
        export_samples({"train": [sample("b"), clashing]}, tmp_path / "out" / "x", store=ImageStore())
    assert list((tmp_path / "out").iterdir()) == []


def test_rows_that_many_add_at_once_are_all_there(home: Path) -> None:
    registry = DatasetRegistry()

    def add(number: int) -> None:
        registry.extend("all", "train", lambda earlier: [sample(str(number))], source=str(number), max_rows=20)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert sorted(str(each.meta["note"]) for each in load_dataset("all@train")) == [str(number) for number in range(8)]
    assert left_over(home) == ["all"]


def test_no_row_is_added_to_what_is_too_long_or_where_none_is_new() -> None:
    registry = DatasetRegistry()
    made = register("few", {"train": [sample("1"), sample("2")]}, source="a")
    assert registry.extend("few", "train", lambda earlier: [], source="b", max_rows=3) is None
    for most, new in ((2, ["3"]), (3, ["3", "4"])):
        with pytest.raises(DataError, match=f"has 2 rows in train, .* only up to {most}; choose another name"):
            registry.extend("few", "train", lambda _, new=new: list(map(sample, new)), source="b", max_rows=most)  # type: ignore[misc]
    assert registry.find("few") == made
