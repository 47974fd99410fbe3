"""JSON objects and COCO, TSV, Arrow, shards and class folders: the formats besides plain rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import red_png, write_jsonl

from mmrl.data import load_dataset
from mmrl.data.formats import read_rows
from mmrl.data.formats.arrow_rows import rows_at_once
from mmrl.data.formats.json_items import JsonItems
from mmrl.data.formats.lines import read_lines
from mmrl.data.rows import RawRow, RowError
from mmrl.data.sources import find_sources
from mmrl.errors import DataError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))


def rows_of(path: Path, content: str) -> list[RawRow | RowError]:
    path.write_text(content, encoding="utf-8")
    return list(read_rows(path))


def coco(**changes: Any) -> dict[str, Any]:
    return {
        "info": {"year": 2026},
        "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
        "images": [
            {"id": 11, "file_name": "a.png", "width": 32, "height": 32},
            {"id": 12, "file_name": "b.png", "width": 32, "height": 32},
        ],
        "annotations": [
            {
                "id": 1,
                "image_id": 11,
                "category_id": 3,
                "bbox": [1, 2, 10, 20.5],
                "iscrowd": 0,
                "segmentation": [[1, 2]],
            },
            {"id": 2, "image_id": 11, "category_id": 7, "bbox": [0, 0, 4, 4]},
            {"id": 3, "image_id": 11, "category_id": 7, "bbox": [0, 0, 9, 9], "iscrowd": 1},
        ],
    } | changes


def test_coco_json_gives_a_row_with_boxes_for_each_image(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(red_png())
    (tmp_path / "coco.json").write_text(json.dumps(coco()))
    first, second = load_dataset(tmp_path / "coco.json")
    boxes = [{"label": "cat", "bbox_2d": [1, 2, 11, 22.5]}, {"label": "dog", "bbox_2d": [0, 0, 4, 4]}]
    assert json.loads(first.answer or "") == boxes
    assert (first.meta["objects"], first.meta["image_id"], first.meta["frame"]) == (boxes, 11, "pixels")
    assert first.messages[0].text.startswith("\nFind every object.")
    assert (second.answer, len(second.images)) == ("[]", 1)


@pytest.mark.parametrize("order", [("annotations", "images", "categories"), ("images", "categories", "annotations")])
def test_coco_lists_may_come_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    values = coco()
    rows = rows_of(tmp_path / "c.json", json.dumps({key: values[key] for key in order}))
    assert [len(row.values["objects"]) for row in rows if isinstance(row, RawRow)] == [2, 0]


def test_what_is_wrong_with_coco_annotations_is_told(tmp_path: Path) -> None:
    odd = [{"id": 9, "image_id": 11, "category_id": 5, "bbox": [1, 2, 3, 4]}, {"id": 8, "image_id": 12, "bbox": [1, 2]}]
    first, second = rows_of(tmp_path / "c.json", json.dumps(coco(annotations=odd)))
    assert first == RowError("c.json", 1, "annotations.category_id", "5 is not among the categories")
    assert isinstance(second, RowError)
    assert "annotation 8 needs `bbox` as x, y, width, height (got a list of 2)" in second.message
    with pytest.raises(DataError, match="annotations is missing"):
        rows_of(tmp_path / "c.json", '{"images": []}')
    with pytest.raises(DataError, match=r"images\[0\]: each item is one JSON object; got 5"):
        rows_of(tmp_path / "c.json", '{"images": [5], "annotations": []}')


def test_json_object_with_one_list_is_that_list(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "a.json", '{"version": 1, "license": {"a": []}, "data": [{"n": 1}, {"n": 2}], "x": null}')
    assert rows == [RawRow(1, {"n": 1}), RawRow(2, {"n": 2})]


def test_json_file_of_one_object_a_line_is_read_as_lines(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "a.json", '\n{"n": 1}\n{"n": }\n{"n": 3}\n')
    assert [row.number for row in rows if isinstance(row, RawRow)] == [2, 4]
    assert isinstance(rows[1], RowError)
    assert rows[1].row == 3


def test_json_is_read_piece_by_piece_wherever_a_piece_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [{"text": 'a"\\ü' * 5, "numbers": [1, -2.5e3, None, True]}, {"n": 12345678901}, {}, {"deep": {"x": [[]]}}]
    for size in (1, 2, 3, 7):
        monkeypatch.setattr("mmrl.data.formats.json_items.CHUNK_CHARACTERS", size)
        rows = rows_of(tmp_path / "a.json", json.dumps({"a": 12.5, "rows": values, "z": 77}, indent=1))
        assert [row.values for row in rows if isinstance(row, RawRow)] == values
        with pytest.raises(DataError, match=r"a.json:3: not valid JSON: Expecting value at column 9"):
            rows_of(tmp_path / "a.json", '[{"n": 1},\n{"n": 2},\n  {"n": }]')


def test_one_json_item_too_large_for_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.data.formats.json_items.CHUNK_CHARACTERS", 50)
    monkeypatch.setattr("mmrl.data.formats.json_items.MAX_ITEM_CHARACTERS", 200)
    with pytest.raises(DataError, match=r"a.json:1: an item of more than 200 characters"):
        rows_of(tmp_path / "a.json", json.dumps([{"image": "A" * 1000}]))
    with (tmp_path / "b.json").open("w+") as text:
        assert JsonItems(tmp_path / "b.json", text).peek() == ""


def test_line_too_long_for_memory_is_an_error_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.data.formats.lines.MAX_LINE_BYTES", 20)
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"image": "' + "A" * 100 + '"}\n{"n": 3}\n')
    assert [number for number, line in read_lines(tmp_path / "a.jsonl") if line is None] == [2]
    rows = list(read_rows(tmp_path / "a.jsonl"))
    assert [row.number for row in rows if isinstance(row, RawRow)] == [1, 3]
    assert isinstance(rows[1], RowError)
    assert "put its images into files" in rows[1].message


@pytest.mark.parametrize(("name", "delimiter"), [("a.tsv", "\t"), ("a.csv", "\t"), ("a.csv", ";"), ("a.csv", ",")])
def test_tables_of_text_are_parted_by_what_their_header_is(tmp_path: Path, name: str, delimiter: str) -> None:
    text = 'problem,answer,images\nWhat?,4,"[""a.png""]"\n'.replace(",", delimiter)
    assert rows_of(tmp_path / name, text) == [RawRow(2, {"problem": "What?", "answer": "4", "images": ["a.png"]})]


def test_csv_cell_may_be_as_long_as_an_image(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path / "a.csv", "image,prompt\n" + "A" * 300_000 + ",x\n")
    assert isinstance(row, RawRow)
    assert len(row.values["image"]) == 300_000


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["a.arrow", "a.data", "a.parquet"])
def test_arrow_is_known_by_its_content_and_read_in_parts(tmp_path: Path, stream: bool, name: str) -> None:
    table = pa.table({"n": list(range(150)), "label": pa.array([0, 1] * 75)})
    features = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    opener = pa.ipc.new_stream if stream else pa.ipc.new_file
    with opener(tmp_path / name, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    rows = [row for row in read_rows(tmp_path / name) if isinstance(row, RawRow)]
    assert [(row.number, row.values["n"]) for row in rows] == [(index + 1, index) for index in range(150)]
    assert [row.values["label"] for row in rows[:2]] == ["no", "yes"]


def test_class_without_a_name_is_an_error_of_its_row(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"names": ["no"], "_type": "ClassLabel"}}}}
    table = pa.table({"label": [0, 4]}).replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == [
        RawRow(1, {"label": "no"}),
        RowError("a.parquet", 2, "label", "class 4 has no name; there are names for 0 to 0"),
    ]


def test_damaged_arrow_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"ARROW1\0\0 and no more")
    with pytest.raises(DataError, match=r"a.arrow: not an Arrow file"):
        list(read_rows(tmp_path / "a.arrow"))


def test_shards_of_a_split_are_read_one_after_another(tmp_path: Path) -> None:
    for index, text in enumerate("abc"):
        name = f"train-{index:05d}-of-00003.jsonl"
        write_jsonl(tmp_path / "d" / "data" / name, {"prompt": text}, {"prompt": "" if index == 2 else text * 2})
    with pytest.raises(DataError, match=r"train-00002-of-00003.jsonl:2: prompt: is empty"):
        load_dataset(tmp_path / "d")
    write_jsonl(tmp_path / "d" / "data" / "train-00002-of-00003.jsonl", {"prompt": "c"})
    assert [sample.messages[0].text for sample in load_dataset(tmp_path / "d")] == ["a", "aa", "b", "bb", "c"]


def test_folder_of_images_by_class_asks_for_the_class(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / "d" / split / name).mkdir(parents=True)
            (tmp_path / "d" / split / name / "1.png").write_bytes(red_png())
    assert sorted(find_sources(tmp_path / "d")) == ["test", "train"]
    first, second = load_dataset(tmp_path / "d@test")
    assert (first.answer, second.answer, first.images[0].width) == ("cat", "dog", 32)
    assert first.messages[0].text == "\nWhich of these does the image show: cat, dog?"
    (tmp_path / "d" / "train" / "cat" / "notes.txt").write_text("not an image")
    assert sorted(find_sources(tmp_path / "d")) == ["test"]


def test_saved_folder_that_names_a_file_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "dataset_info.json").write_text("{}")
    (tmp_path / "d" / "state.json").write_text('{"_data_files": [{"filename": "../x.arrow"}]}')
    with pytest.raises(DataError, match=r"state.json: names '../x.arrow', which leads out of"):
        load_dataset(tmp_path / "d")
    (tmp_path / "d" / "state.json").write_text("[]")
    with pytest.raises(DataError, match="must hold one JSON object"):
        load_dataset(tmp_path / "d")


def test_d18_answer_that_changes_its_type_is_text_in_every_row(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", {"prompt": "a", "answer": 3}, {"prompt": "b", "answer": "x+1"})
    assert [sample.answer for sample in load_dataset(tmp_path / "a.jsonl")] == ["3", "x+1"]


def test_d20_text_that_looks_like_a_schema_changes_nothing(tmp_path: Path) -> None:
    body = "hello,action: string, datetime: timestamp[s], author: string,"
    write_jsonl(tmp_path / "a.jsonl", {"prompt": "a", "body": body}, {"prompt": "b", "body": "x"})
    assert [sample.meta["body"] for sample in load_dataset(tmp_path / "a.jsonl")] == [body, "x"]


def test_d21_rows_are_taken_few_at_a_time_where_they_are_large() -> None:
    assert rows_at_once(1000, 1000 * 2**20) == 16
    assert rows_at_once(1000, 1000 * 2**30) == 1
    assert rows_at_once(10**6, 10**6) == 64
    assert rows_at_once(0, 0) == 64


def test_d21_row_group_that_no_memory_could_hold_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"image": [bytes(1000)] * 100}), tmp_path / "a.parquet", use_dictionary=False)
    memory = psutil.virtual_memory()._replace(available=10_000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    with pytest.raises(DataError, match=r"row group 0 holds 100 rows of .*row_group_size=64"):
        list(read_rows(tmp_path / "a.parquet"))
