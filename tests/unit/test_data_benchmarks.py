"""Files of public benchmarks, made as their makers document them, read as mmrl's own rows."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mmrl.cli.app import main
from mmrl.data import load_dataset
from mmrl.data.benchmarks import benchmark_row
from mmrl.data.images import ImageStore
from mmrl.data.ingest import BadRowsError
from mmrl.data.options import ReadOptions
from mmrl.data.rows import RowProblem
from mmrl.types import Sample


def picture(red: int = 9) -> dict[str, Any]:
    """An image as `datasets` writes it to parquet."""
    file = io.BytesIO()
    Image.new("RGB", (12, 8), (red, 0, 0)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": f"{red}.png"}


def read(path: Path, benchmark: Any, store: ImageStore) -> list[Sample]:
    return list(load_dataset(path, options=ReadOptions(benchmark=benchmark), store=store, workers=0))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_mmmu_has_its_images_where_the_question_names_them_and_lettered_choices(
    tmp_path: Path, store: ImageStore
) -> None:
    empty = {f"image_{index}": None for index in range(3, 8)}
    rows = [
        {
            "id": "validation_Art_1",
            "question": "Compare <image 2> with <image 1>.",
            "question_type": "multiple-choice",
            "options": "['older', 'it\\'s newer']",
            "answer": "B",
            "subfield": "Art Theory",
            "image_1": picture(1),
            "image_2": picture(2),
            **empty,
        },
        {
            "id": "validation_Math_2",
            "question": "How many? <image 1>",
            "question_type": "open",
            "options": "[]",
            "answer": "5",
            "subfield": "Counting",
            "image_1": picture(3),
            "image_2": None,
            **empty,
        },
    ]
    choice, number = read(parquet(tmp_path / "validation-00000-of-00001.parquet", rows), "mmmu", store)
    text = "Compare  with .\nA. older\nB. it's newer\nAnswer with the letter of the right choice within \\boxed{}."
    assert choice.messages[0].text == text
    assert [store.open(image).getpixel((0, 0))[0] for image in choice.images] == [2, 1]
    assert (choice.answer, choice.meta["source"]) == ("B", "mmmu/Art Theory")
    assert choice.meta["mmmu_id"] == "validation_Art_1"
    assert number.messages[0].text.endswith("Put your final answer within \\boxed{}.")
    assert number.answer == "5"


def test_mathvista_asks_for_the_letter_of_a_choice_or_a_number_of_some_precision(
    tmp_path: Path, store: ImageStore
) -> None:
    metadata = {"task": "figure question answering", "source": "ChartQA", "language": "english"}
    shared = {"image": "images/1.jpg", "decoded_image": picture(), "metadata": metadata, "query": "Hint: …"}
    rows = [
        {
            "pid": "1",
            "question": "Which is larger?",
            "choices": ["Yes", "No"],
            "unit": None,
            "precision": None,
            "answer": "No",
            "question_type": "multi_choice",
            "answer_type": "text",
            **shared,
        },
        {
            "pid": "2",
            "question": "How long?",
            "choices": None,
            "unit": "m",
            "precision": 1.0,
            "answer": "1.2",
            "question_type": "free_form",
            "answer_type": "float",
            **shared,
        },
    ]
    choice, number = read(parquet(tmp_path / "testmini.parquet", rows), "mathvista", store)
    assert (choice.answer, choice.meta["source"]) == ("B", "mathvista/figure question answering")
    assert "A. Yes\nB. No\n" in choice.messages[0].text
    assert number.messages[0].text.startswith("How long? (Unit: m) Give the answer with 1 decimal place.\n")
    assert number.answer == "1.2"
    assert len(number.images) == 1


def test_geometry3k_is_read_in_both_forms(tmp_path: Path, store: ImageStore) -> None:
    hub = [{"images": [picture()], "problem": "<image>Find x.", "answer": "3 \\sqrt{2}"}]
    (sample,) = read(parquet(tmp_path / "test.parquet", hub), "geometry3k", store)
    assert (sample.answer, len(sample.images), sample.meta["source"]) == ("3 \\sqrt{2}", 1, "geometry3k")
    Image.new("RGB", (12, 8)).save(tmp_path / "img_diagram.png")
    first = {"id": 2401, "problem_text": "Find y.", "choices": ["6", "8"], "answer": "B", "image": "img_diagram.png"}
    (tmp_path / "data.jsonl").write_text(json.dumps(first) + "\n")
    (sample,) = read(tmp_path / "data.jsonl", "geometry3k", store)
    assert sample.messages[0].text.startswith("Find y.\nA. 6\nB. 8\n")
    assert (sample.answer, len(sample.images)) == ("B", 1)


def test_gsm8k_has_the_number_behind_its_solution(tmp_path: Path, store: ImageStore) -> None:
    row = {"question": "How many apples?", "answer": "She has 2*600=<<2*600=1200>>1200.\n#### 1,200"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    (sample,) = read(tmp_path / "test.jsonl", "gsm8k", store)
    assert (sample.answer, sample.meta["source"]) == ("1200", "gsm8k")
    assert sample.meta["gsm8k_solution"].startswith("She has")
    assert sample.messages[0].text == "How many apples?\nPut your final answer within \\boxed{}."


@pytest.mark.parametrize(
    ("benchmark", "row", "message"),
    [
        ("gsm8k", {"question": "q", "answer": "12"}, "does not end in `#### NUMBER`"),
        ("gsm8k", {"problem": "q"}, "is missing or empty; is it a file of this benchmark"),
        ("mathvista", {"question": "q", "choices": ["a"], "answer": "b"}, "is none of the choices"),
        ("mathvista", {"question": "q", "choices": None, "answer": "b"}, "every row of MathVista has an image"),
        ("mmmu", {"question": "see <image 1>", "options": "[]", "answer": "A"}, r"names <image 1>"),
        ("mmmu", {"question": "q", "options": "[1, ", "answer": "A"}, "is no list in text"),
    ],
)
def test_rows_that_are_not_of_the_benchmark_are_told(benchmark: Any, row: dict[str, Any], message: str) -> None:
    with pytest.raises(RowProblem, match=message):
        benchmark_row(benchmark, row)


def test_a_benchmark_is_registered_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps({"question": "1+1?", "answer": "Two.\n#### 2"}) + "\n")
    assert main(["dataset", "add", str(file), "--name", "gsm8k", "--benchmark", "gsm8k"]) == 0
    assert load_dataset("gsm8k").samples[0].answer == "2"
    assert main(["dataset", "add", str(file), "--name", "x", "--benchmark", "mmmmu"]) == 2
    assert "allowed: mmmu, mathvista, geometry3k, gsm8k" in capsys.readouterr().err
    file.write_text(json.dumps({"question": "1+1?", "answer": "2"}) + "\n")
    with pytest.raises(BadRowsError, match="#### NUMBER"):
        load_dataset(str(file), options=ReadOptions(benchmark="gsm8k"))
