"""Splits of files and folders, and `load_dataset` over them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import RED, red_png, write_jsonl

import mmrl
from mmrl.data import Dataset, ImageStore, load_dataset
from mmrl.data.ingest import BadRowsError
from mmrl.data.sources import find_sources
from mmrl.errors import DataError, NotFoundError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def question(text: str) -> dict[str, str]:
    return {"prompt": text, "answer": text.upper()}


def prompts(dataset: Dataset) -> list[str]:
    return [sample.messages[0].text for sample in dataset]


@pytest.mark.parametrize(
    ("file", "split", "expected"),
    [("a.jsonl", None, "train"), ("test.jsonl", None, "test"), ("test.jsonl", "dev", "dev")],
)
def test_file_is_one_split(tmp_path: Path, file: str, split: str | None, expected: str) -> None:
    path = write_jsonl(tmp_path / "d" / file, question("a"), question("b"))
    dataset = load_dataset(path, split=split)
    assert (dataset.split, len(dataset), prompts(dataset)) == (expected, 2, ["a", "b"])
    assert dataset[1].answer == "B"
    assert dataset[0:1] == (dataset[0],)


def test_public_name_yields_samples_whose_images_open(tmp_path: Path) -> None:
    (tmp_path / "d" / "img").mkdir(parents=True)
    (tmp_path / "d" / "img" / "a.png").write_bytes(red_png())
    path = write_jsonl(tmp_path / "d" / "a.jsonl", {"prompt": "<image>?", "images": ["img/a.png"]})
    dataset = mmrl.load_dataset(str(path))
    (image,) = dataset.open_images(dataset[0])
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (32, 32), RED)


def test_json_and_parquet_give_the_samples_of_jsonl(tmp_path: Path) -> None:
    rows = [question("a") | {"image": None}, {"prompt": "<image>b", "answer": "B", "image": {"bytes": red_png()}}]
    (tmp_path / "d").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d" / "x.parquet")
    (tmp_path / "d" / "a.png").write_bytes(red_png())
    rows[1]["image"] = "a.png"
    write_jsonl(tmp_path / "d" / "x.jsonl", *rows)
    (tmp_path / "d" / "x.json").write_text(json.dumps(rows))
    ids = [
        [sample.id for sample in load_dataset(tmp_path / "d" / f"x.{suffix}")]
        for suffix in ("jsonl", "json", "parquet")
    ]
    assert ids[0] == ids[1] == ids[2]


def test_folder_has_a_split_for_each_file(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        write_jsonl(tmp_path / "d" / f"{split}.jsonl", question(split))
    (tmp_path / "d" / "README.md").write_text("no data")
    assert list(find_sources(tmp_path / "d")) == ["test", "train", "validation"]
    assert prompts(load_dataset(tmp_path / "d")) == ["train"]
    assert prompts(load_dataset(f"{tmp_path}/d@test")) == ["test"]
    with pytest.raises(NotFoundError, match=r"no split 'tset'; it has test, train, validation; nearest: test"):
        load_dataset(f"{tmp_path}/d@tset")


def test_folder_of_images_lists_them_in_a_metadata_file(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "d" / split).mkdir(parents=True)
        (tmp_path / "d" / split / "a.png").write_bytes(red_png())
        (tmp_path / "d" / split / "metadata.csv").write_text("file_name,question,answer\na.png,Colour?,red\n")
    (sample,) = load_dataset(tmp_path / "d", split="test")
    assert (sample.messages[0].text, sample.answer, sample.images[0].width) == ("Colour?", "red", 32)
    assert (sample.meta["source"], sample.meta["split"]) == ("metadata.csv", "test")
    alone = load_dataset(tmp_path / "d" / "train", split="dev")
    assert (alone.split, alone[0].id) == ("dev", sample.id)


def test_two_files_of_one_split_are_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "d" / "train.jsonl", question("a"))
    (tmp_path / "d" / "train.json").write_text("[]")
    with pytest.raises(DataError, match=r"several files for split 'train' \(train.json, train.jsonl\)"):
        load_dataset(tmp_path / "d")


def test_folder_without_data_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(DataError, match=r"holds no data set: needs a file for each split such as train.jsonl"):
        load_dataset(tmp_path / "d")


def test_splits_without_train_must_be_named(tmp_path: Path) -> None:
    for split in ("a", "b"):
        write_jsonl(tmp_path / "d" / f"{split}.jsonl", question(split))
    with pytest.raises(DataError, match=r"has the splits a, b and none is named train; name one as"):
        load_dataset(tmp_path / "d")


def test_missing_path_is_not_found_with_the_nearest(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "geometry.jsonl", question("a"))
    with pytest.raises(
        NotFoundError, match=r"neither registered in .* nor a file or folder; nearest: .*geometry.jsonl"
    ):
        load_dataset(tmp_path / "geometri.jsonl")


def test_two_different_splits_are_refused(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", question("a"))
    with pytest.raises(DataError, match=r"names split 'x', and split='y' is asked for"):
        load_dataset(f"{path}@x", split="y")


def test_path_with_an_at_sign_is_found(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "me@home" / "a.jsonl", question("a"))
    assert prompts(load_dataset(path)) == ["a"]


def test_limit_reads_the_first_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}\nbroken\n')
    assert prompts(load_dataset(path, limit=2)) == ["a", "b"]
    with pytest.raises(BadRowsError):
        load_dataset(path, limit=3)
    with pytest.raises(DataError, match=r"limit must be at least 1"):
        load_dataset(path, limit=0)


def test_bad_rows_are_all_kept_and_the_first_twenty_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "ok"}\n' + '{"prompt": ""}\n' * 25)
    with pytest.raises(BadRowsError) as caught:
        load_dataset(path)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{path}: 25 of 26 rows cannot be used; mend them")
    assert lines[1] == "  a.jsonl:2: prompt: is empty: neither text nor image"
    assert len(lines) == 22
    assert lines[-1] == "  … and 5 more; `mmrl dataset validate PATH --json` lists all"
    assert [error.row for error in caught.value.errors] == list(range(2, 27))


def test_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match=r"has no rows"):
        load_dataset(tmp_path / "a.jsonl")


def test_images_go_to_the_store_that_is_given(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a.png").write_bytes(red_png())
    path = write_jsonl(tmp_path / "a.jsonl", {"prompt": "<image>", "image": "a.png"})
    store = ImageStore(tmp_path / "elsewhere")
    dataset = load_dataset(path, store=store)
    assert dataset.store is store
    assert store.path(dataset[0].images[0]).is_file()
    assert not (home / "images").exists()


def test_version_follows_from_the_content(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", question("a"))
    first = load_dataset(path).version
    assert load_dataset(path).version == first
    write_jsonl(path, question("b"))
    assert load_dataset(path).version != first
