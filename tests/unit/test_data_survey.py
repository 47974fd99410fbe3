"""What is told of a data set besides its bad rows: repeats, contradictions, leaks, emptiness, distributions."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_files import red_png, write_jsonl
from PIL import Image

from mmrl.data.images import ImageStore
from mmrl.data.ingest import add_dataset, validate
from mmrl.data.statistics import Statistics
from mmrl.data.thumbnails import thumbnail
from mmrl.errors import DataError, NotFoundError
from mmrl.types import ImagePart, ImageRef, Message, Sample, TextPart


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_warnings_name_the_rows(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.png").write_bytes(red_png())
    seen = {"prompt": "<image>?", "images": ["a.png"], "answer": "1"}
    write_jsonl(folder / "train.jsonl", seen, {"prompt": "x", "answer": "1"}, {"prompt": "x", "answer": "2"}, seen)
    write_jsonl(
        folder / "test.jsonl",
        {"prompt": "<image>other", "images": ["a.png"], "answer": " "},
        {"prompt": "x", "answer": "2"},
    )
    assert validate(folder).warnings() == [
        "test: 1 row(s) have an empty answer (row 1)",
        "train: 1 row(s) have the prompt of an earlier one and another answer (row 3)",
        "train: 1 row(s) repeat an earlier one (row 4)",
        "test and train share 1 row(s) (row test:2 is train:3)",
        "test and train share 1 prompt(s) with different answers (row test:2 and train:2)",
        "test and train share 1 image(s)",
    ]


def test_only_the_first_few_rows_are_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", *[{"prompt": "x", "answer": "1"}] * 9)
    assert validate(path).warnings() == ["train: 8 row(s) repeat an earlier one (rows 2, 3, 4, 5, 6 …)"]


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
def test_an_empty_file_is_an_error_and_is_not_registered(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    survey = validate(path)
    assert (survey.num_rows, survey.num_valid, survey.errors) == (0, 0, [])
    assert [str(fault) for fault in survey.faults] == ["a.jsonl:0: holds no rows; a data set needs at least one"]
    with pytest.raises(DataError, match="split train has no rows; nothing was added"):
        add_dataset(path, name="q")


def test_a_registered_set_can_be_validated_by_name(tmp_path: Path) -> None:
    add_dataset(write_jsonl(tmp_path / "a.jsonl", {"prompt": "x"}, {"prompt": "y", "answer": "1"}), name="q")
    survey = validate("q")
    assert (survey.num_rows, survey.num_valid) == (2, 2)
    assert survey.warnings() == ["train: 1 row(s) have no answer (row 1)"]
    assert validate("q@train").num_rows == 2
    with pytest.raises(NotFoundError, match="has no split 'test'"):
        validate("q@test")


def test_statistics_of_three_rows_by_hand() -> None:
    image = ImageRef("0" * 64, 30, 40)
    statistics = Statistics()
    for text, images, answer in (("abc", 0, "1"), ("abcde", 2, "1"), ("a" * 10, 1, None)):
        parts = (*[ImagePart(image)] * images, TextPart(text))
        statistics.add(Sample("s", (Message("user", parts),), answer))
    values = statistics.to_json()
    assert values["prompt_characters"] == {"min": 3, "p05": 3.2, "median": 5.0, "mean": 6.0, "p95": 9.5, "max": 10}
    assert values["images"]["per_row"] == {"0": 1, "1": 1, "2": 1}
    assert values["images"]["pixels"]["mean"] == 1200
    assert values["answers"]["most_common"] == {"1": 2}
    assert (values["answers"]["distinct"], values["answers"]["missing"]) == (1, 1)


def test_a_thumbnail_is_made_when_first_asked_for_and_kept(home: Path) -> None:
    store = ImageStore()
    reference = store.add(Image.new("RGB", (1000, 500), (250, 10, 10)))
    assert not (home / "thumbnails").exists()
    path = thumbnail(reference, side=128)
    with Image.open(path) as small:
        assert (small.format, small.size) == ("JPEG", (128, 64))
    made = path.stat().st_mtime_ns
    store.path(reference).unlink()
    assert thumbnail(reference, side=128) == path
    assert path.stat().st_mtime_ns == made
    assert [one.name for one in path.parent.iterdir()] == [f"{reference.sha256}.jpg"]


def test_a_small_image_is_not_enlarged_and_a_missing_one_is_not_found() -> None:
    reference = ImageStore().add(red_png(20))
    with Image.open(thumbnail(reference)) as small:
        assert small.size == (20, 20)
    with pytest.raises(NotFoundError, match="is not in the image store"):
        thumbnail(ImageRef("f" * 64, 5, 5))
    with pytest.raises(DataError, match=r"sides of 64, 128, 256, 512 pixels \(got 100\)"):
        thumbnail(reference, side=100)


def test_d05_a_text_prompt_in_two_splits_with_other_answers_is_a_leak(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write_jsonl(folder / "train.jsonl", {"prompt": "2+2?", "answer": "4"})
    write_jsonl(folder / "test.jsonl", {"prompt": "a", "answer": "1"}, {"prompt": "2+2?", "answer": "four"})
    assert validate(folder).warnings() == [
        "test and train share 1 prompt(s) with different answers (row test:2 and train:1)"
    ]


def test_a_missing_answer_names_the_columns_that_may_hold_it(tmp_path: Path) -> None:
    file = write_jsonl(
        tmp_path / "train.jsonl",
        {"prompt": "a", "Answer": "1"},
        {"prompt": "b", "solution": "2", "topic": "x"},
        {"prompt": "c", "topic": "x"},
    )
    assert validate(file).warnings() == [
        "train: 1 row(s) have no answer (is it in 'Answer'? then read with --map answer=Answer) (row 1)",
        "train: 1 row(s) have no answer (is it in 'solution'? then read with --map answer=solution) (row 2)",
        "train: 1 row(s) have no answer (row 3)",
    ]


def test_identical_preferred_and_rejected_answers_are_told_of(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "train.jsonl", {"prompt": "a", "answer": "1", "chosen": "x", "rejected": "x"})
    [warning] = validate(file).warnings()
    assert "chosen and rejected are identical" in warning


def test_rows_of_preferred_or_judged_answers_need_no_other(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "chosen": "x", "rejected": "y"},
        {"prompt": "b", "completion": "x", "label": True},
        {"prompt": "c"},
    ]
    file = write_jsonl(tmp_path / "train.jsonl", *rows)
    assert validate(file).warnings() == ["train: 1 row(s) have no answer (row 3)"]
