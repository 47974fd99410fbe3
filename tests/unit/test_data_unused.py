"""Nothing that a row holds is lost without a word: images, answers, pairs, system prompts."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from data_files import red_png, write_jsonl

from mmrl.data.images import inspect_image
from mmrl.data.ingest import validate
from mmrl.data.normalise import normalise_row
from mmrl.data.options import ReadOptions
from mmrl.data.rows import RawRow, RowError
from mmrl.types import ImagePart, Sample, TextPart

PNG = red_png()
URI = "data:image/png;base64," + base64.b64encode(PNG).decode()


def read(values: Mapping[str, Any], **options: Any) -> Sample | RowError:
    return normalise_row(
        RawRow(1, values),
        file="f.jsonl",
        split="train",
        root=Path(),
        add_image=inspect_image,
        options=ReadOptions(**options),
    )


def sample(values: Mapping[str, Any], **options: Any) -> Sample:
    result = read(values, **options)
    assert isinstance(result, Sample), result
    return result


def error(values: Mapping[str, Any], **options: Any) -> RowError:
    result = read(values, **options)
    assert isinstance(result, RowError), result
    return result


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "<image_1> what?", "img": "a.png"},
        {"prompt": "<|image_pad|> what?", "picture": "a.png"},
        {"prompt": "[img] what?", "image_path": "a.png"},
        {"prompt": "what?", "Image": ["a.png"]},
        {"prompt": "what?", "photo": {"path": "a.png"}},
        {"prompt": "what?", "image_1": PNG},
        {"prompt": "what?", "scan": PNG},
        {"prompt": "what?", "scan": {"bytes": PNG}},
        {"prompt": "what?", "scan": [URI]},
        {"prompt": "what?", "scan": URI.partition(",")[2]},
        {"prompt": "what?", "extra_info": {"scan": URI}},
        {"prompt": "<image_1> what?", "image_1": PNG, "image_2": PNG},
    ],
)
def test_d03_an_image_that_nothing_uses_is_an_error_never_a_text_only_row(row: dict[str, Any]) -> None:
    problem = error(row)
    assert problem.field == list(row)[-1]
    assert f"--map images={problem.field}" in problem.message


@pytest.mark.parametrize(
    "extra",
    [
        {"image_id": "COCO_1"},
        {"image_width": 3},
        {"num_images": "0"},
        {"has_image": "false"},
        {"img": None},
        {"picture": ""},
        {"image_caption": "a cat"},
    ],
)
def test_columns_about_images_that_hold_none_are_meta(extra: dict[str, Any]) -> None:
    assert sample({"prompt": "a", "answer": "1"} | extra).images == ()


def test_where_a_used_image_came_from_is_meta() -> None:
    row = {"prompt": "<image>a", "image": PNG, "image_url": "https://example.org/a.png"}
    assert sample(row).meta["image_url"] == "https://example.org/a.png"


@pytest.mark.parametrize("place", ["<image 1>", "<image_1>", "<image1>"])
def test_numbered_columns_are_read_where_the_text_names_them(place: str) -> None:
    blue = red_png(16)
    row = {"question": f"{place} or <image 2>?", "image_2": {"bytes": blue}, "image_1": {"bytes": PNG}, "image_3": None}
    first, word, second, end = sample(row).messages[0].content
    assert isinstance(first, ImagePart)
    assert first.image.width == 32
    assert isinstance(second, ImagePart)
    assert second.image.width == 16
    assert (word, end) == (TextPart(" or "), TextPart("?"))


def test_numbered_columns_are_taken_in_order_by_plain_placeholders() -> None:
    images = sample({"prompt": "<image><image>?", "image_2": red_png(16), "image_1": PNG}).images
    assert [image.width for image in images] == [32, 16]


def test_a_numbered_place_without_its_column_is_an_error() -> None:
    assert "<image 2>" in error({"prompt": "<image 1><image 2>", "image_1": PNG}).message


def test_a_reward_model_is_an_object_or_its_json_text() -> None:
    assert sample({"prompt": "a", "reward_model": '{"ground_truth": "7"}'}).answer == "7"
    problem = error({"prompt": "a", "reward_model": "{'ground_truth': 7}"})
    assert problem.field == "reward_model"
    assert "JSON text" in problem.message
    assert sample({"prompt": "a", "answer": "1", "reward_model": "some-model"}).answer == "1"


def test_a_prompt_of_messages_as_json_text_is_read_as_messages(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert [turn.role for turn in sample({"prompt": json.dumps(messages)}).messages] == ["system", "user"]
    assert sample({"prompt": "[1, 2] summed?"}).messages[0].text == "[1, 2] summed?"
    assert "json.dumps" in error({"prompt": str(messages)}).message


@pytest.mark.parametrize(
    ("pair", "field"),
    [
        ({"chosen": "x"}, "rejected"),
        ({"rejected": "x", "chosen": None}, "chosen"),
        ({"chosen": 3, "rejected": "x"}, "chosen"),
        ({"chosen": "x", "rejected": True}, "rejected"),
    ],
)
def test_half_a_pair_or_one_of_another_type_is_an_error(pair: dict[str, Any], field: str) -> None:
    assert error({"prompt": "a"} | pair).field == field


def test_identical_answers_without_a_prompt_are_an_error() -> None:
    assert "identical" in error({"chosen": "a b", "rejected": "a b"}).message


def test_one_answer_beside_the_reference_is_kept_as_messages() -> None:
    meta = sample({"prompt": "a", "answer": "1", "chosen": "x"}).meta
    assert meta["chosen"] == [{"role": "assistant", "content": [{"type": "text", "text": "x"}]}]


def test_alpaca_output_of_two_is_a_pair_and_of_another_type_an_error() -> None:
    meta = sample({"instruction": "a", "output": ["good", "bad"]}).meta
    assert meta["chosen"][0]["content"][0]["text"] == "good"
    assert meta["rejected"][0]["content"][0]["text"] == "bad"
    assert error({"instruction": "a", "output": ["good"]}).field == "output"


def test_a_system_prompt_is_never_dropped() -> None:
    turns = [{"from": "system", "value": "first"}, {"from": "human", "value": "u"}]
    assert error({"instruction": "a", "system": ["s"]}).field == "system"
    assert error({"conversations": turns, "system": "second"}).field == "system"
    assert len(sample({"conversations": turns, "system": "first"}).messages) == 2


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}, "tool_calls"),
        ({"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x"}}]}, "Anthropic"),
    ],
)
def test_parts_of_other_interfaces_are_named(message: dict[str, Any], word: str) -> None:
    problem = error({"messages": [message]})
    assert word in problem.field + problem.message


def test_a_lost_image_is_told_by_validate_with_its_line(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "train.jsonl", {"prompt": "a"}, {"prompt": "b", "picture": "a.png"})
    assert [(fault.row, fault.field) for fault in validate(file).faults] == [(2, "picture")]


def test_a_text_only_row_that_names_an_image_file_is_told_of(tmp_path: Path) -> None:
    file = write_jsonl(
        tmp_path / "train.jsonl",
        {"prompt": "a", "answer": "1", "screenshot": "shots/a.png"},
        {"prompt": "b", "answer": "1", "frames": ["a.jpg"], "note": "see a.png below"},
    )
    assert validate(file).warnings() == [
        "train: 1 row(s) hold no image but name a file in 'screenshot'; read it with --map images=screenshot (row 1)",
        "train: 1 row(s) hold no image but name a file in 'frames'; read it with --map images=frames (row 2)",
    ]


def test_a_file_named_inside_of_an_object_is_told_of(tmp_path: Path) -> None:
    file = write_jsonl(
        tmp_path / "train.jsonl",
        {"prompt": "a", "answer": "1", "meta": {"image": "a.png", "size": 3}},
        {"prompt": "<image>b", "answer": "1", "image": URI, "meta": {"image": "a.png"}},
    )
    assert validate(file).warnings() == [
        "train: 1 row(s) hold no image but name a file in 'meta.image'; read it with --map images=meta.image (row 1)"
    ]


def test_a_numbered_place_in_a_row_without_images_is_told_of(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "train.jsonl", *({"prompt": f"{text} What?", "answer": "1"} for text in PLACES))
    assert validate(file).warnings() == [
        "train: 1 row(s) hold no image and <image_1> in their text; that image is read from a column image_1 (row 1)",
        "train: 1 row(s) hold no image and <image 2> in their text; that image is read from a column image_2 (row 2)",
    ]


PLACES = ("<image_1>", "<image 2>", "image_3", "<image_x>")


def test_a_numbered_place_whose_column_is_empty_is_an_error() -> None:
    problem = error({"question": "<image 1> What?", "image_1": None, "image_2": None, "answer": "A"})
    assert (problem.field, "the text holds <image 1>" in problem.message) == ("image_1", True)
    assert sample({"question": "What?", "image_1": None, "answer": "A"}).images == ()


def test_a_message_that_an_extra_object_repeats_is_meta_where_the_image_is_used() -> None:
    assert sample({"prompt": "<image>a", "images": [PNG], "extra_info": {"raw": URI}}).meta["extra_info"] == {
        "raw": URI
    }
