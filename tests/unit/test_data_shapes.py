"""Rows as other tools write them, from their documentation: each is recognised, and what it says is kept."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from data_files import red_png

from mmrl.data.images import ImageStore
from mmrl.data.normalise import normalise_row
from mmrl.data.options import ReadOptions, parse_mapping
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError
from mmrl.types import ImagePart, Message, Sample, TextPart

PNG = red_png()


class Reader:
    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.store = ImageStore(folder / "images")
        self.red = self.store.add(PNG)

    def try_row(self, values: Mapping[str, Any], **options: Any) -> Sample | RowError:
        return normalise_row(
            RawRow(7, values),
            file="f.jsonl",
            split="train",
            root=self.root,
            add_image=self.store.add,
            options=ReadOptions(**options),
        )

    def __call__(self, values: Mapping[str, Any], **options: Any) -> Sample:
        result = self.try_row(values, **options)
        assert isinstance(result, Sample), result
        return result

    def error(self, values: Mapping[str, Any], **options: Any) -> RowError:
        result = self.try_row(values, **options)
        assert isinstance(result, RowError), result
        return result


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    (tmp_path / "a.png").write_bytes(PNG)
    return Reader(tmp_path)


def turns(sample: Sample) -> list[tuple[str, str]]:
    """Role and text of each turn, an image as `#`."""
    return [
        (message.role, "".join("#" if isinstance(part, ImagePart) else part.text for part in message.content))
        for message in sample.messages
    ]


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": [{"type": "text", "text": text}]}]


def test_verl_row_has_its_answer_in_the_reward_model_and_its_source(read: Reader) -> None:
    row = {
        "data_source": "hiyouga/geometry3k",
        "prompt": [{"role": "user", "content": "<image>Find x. Think first."}],
        "images": [{"bytes": PNG, "path": None}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {"split": "train", "index": 3, "answer": "4", "question": "<image>Find x."},
    }
    sample = read(row)
    assert turns(sample) == [("user", "#Find x. Think first.")]
    assert (sample.answer, sample.meta["source"], sample.meta["ability"]) == ("4", "hiyouga/geometry3k", "math")
    assert sample.meta["extra_info"]["index"] == 3
    assert sample.meta["reward_model"]["style"] == "rule"


def test_verl_image_may_be_an_object_with_image_or_a_nested_answer(read: Reader) -> None:
    row = {
        "prompt": [{"role": "user", "content": "<image><image>?"}],
        "images": [{"image": "a.png"}, {"bytes": PNG, "image": None}],
        "reward_model": {"ground_truth": ["3", "4"]},
    }
    assert read(row).images == (read.red, read.red)
    assert read(row).answer == '["3", "4"]'


def test_easyr1_row(read: Reader) -> None:
    sample = read({"problem": "<image>Find x.", "answer": "4", "images": [PNG]})
    assert (turns(sample), sample.answer) == ([("user", "#Find x.")], "4")


def test_trl_prompt_and_completion_are_question_and_answer(read: Reader) -> None:
    plain = read({"prompt": "The sky is", "completion": " blue."})
    assert (turns(plain), plain.answer) == ([("user", "The sky is")], " blue.")
    chat = read(
        {
            "prompt": [{"role": "user", "content": "What color is the sky?"}],
            "completion": [{"role": "assistant", "content": "It is blue."}],
        }
    )
    assert (turns(chat), chat.answer) == ([("user", "What color is the sky?")], "It is blue.")
    both = read({"prompt": "1+1?", "completion": "So \\boxed{2}", "answer": 2})
    assert (turns(both)[1], both.answer) == (("assistant", "So \\boxed{2}"), "2")


def test_trl_messages_with_image_slots(read: Reader) -> None:
    content = [{"type": "image", "text": None}, {"type": "text", "text": "What?"}]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Red."}]}
    sample = read({"messages": [{"role": "user", "content": content}, answer], "images": [{"bytes": PNG, "path": "x"}]})
    assert (turns(sample), sample.answer) == ([("user", "#What?")], "Red.")


def test_trl_preference_keeps_both_answers_as_messages(read: Reader) -> None:
    explicit = read({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})
    assert (turns(explicit), explicit.answer) == ([("user", "The sky is")], None)
    assert (explicit.meta["chosen"], explicit.meta["rejected"]) == (said(" blue."), said(" green."))
    chat = read(
        {
            "prompt": [{"role": "user", "content": "<image>Colour?"}],
            "chosen": [{"role": "assistant", "content": "Red."}],
            "rejected": [{"role": "assistant", "content": [{"type": "text", "text": "Blue."}]}],
            "images": [PNG],
        }
    )
    assert turns(chat) == [("user", "#Colour?")]
    assert (chat.meta["chosen"], chat.meta["rejected"]) == (said("Red."), said("Blue."))


def test_trl_preference_may_repeat_the_prompt_in_both_answers(read: Reader) -> None:
    question = {"role": "user", "content": "<image>Colour?"}
    row = {
        "chosen": [question, {"role": "assistant", "content": "Red."}],
        "rejected": [question, {"role": "assistant", "content": "Blue."}],
        "images": [PNG],
    }
    sample = read(row)
    assert turns(sample) == [("user", "#Colour?")]
    assert (sample.meta["chosen"], sample.meta["rejected"]) == (said("Red."), said("Blue."))
    assert read({"prompt": [question], **row}).meta["rejected"] == said("Blue.")
    text = read({"chosen": "The sky is blue.", "rejected": "The sky is black."})
    assert (turns(text), text.meta["chosen"]) == ([("user", "The sky is ")], said("blue."))


def test_rows_that_differ_in_the_rejected_answer_alone_are_two(read: Reader) -> None:
    first = read({"prompt": "a", "chosen": "x", "rejected": "y"})
    second = read({"prompt": "a", "chosen": "x", "rejected": "z"})
    assert first.id != second.id
    assert read({"prompt": "a"}).id == read({"prompt": "a", "note": 1}).id


def test_trl_judged_completion_is_no_reference_answer(read: Reader) -> None:
    sample = read({"prompt": "The sky is", "completion": " green.", "label": False})
    assert (turns(sample), sample.answer) == ([("user", "The sky is")], None)
    assert (sample.meta["completion"], sample.meta["label"]) == (said(" green."), False)


def test_sharegpt_conversation_with_system_tools_and_images(read: Reader) -> None:
    row = {
        "conversations": [
            {"from": "human", "value": "<image>What is it?"},
            {"from": "function_call", "value": '{"name": "zoom"}'},
            {"from": "observation", "value": "<image>closer"},
            {"from": "gpt", "value": "A red square. <image> is a tag."},
        ],
        "system": "Be brief.",
        "tools": '[{"name": "zoom"}]',
        "images": ["a.png", "a.png"],
    }
    sample = read(row)
    assert turns(sample) == [
        ("system", "Be brief."),
        ("user", "#What is it?"),
        ("assistant", '{"name": "zoom"}'),
        ("tool", "#closer"),
    ]
    assert sample.answer == "A red square. <image> is a tag."
    assert sample.meta["tools"] == '[{"name": "zoom"}]'
    assert "system" not in sample.meta


def test_sharegpt_preference_and_judged_answers(read: Reader) -> None:
    conversation = [{"from": "human", "value": "Hi"}]
    pair = {"chosen": {"from": "gpt", "value": "Hello"}, "rejected": {"from": "gpt", "value": "No"}}
    sample = read({"conversations": conversation, **pair})
    assert (sample.meta["chosen"], sample.meta["rejected"]) == (said("Hello"), said("No"))
    judged = read({"conversations": [*conversation, {"from": "gpt", "value": "No"}], "kto_tag": False})
    assert (judged.answer, judged.meta["completion"], judged.meta["label"]) == (None, said("No"), False)


def test_alpaca_row_with_input_history_and_system(read: Reader) -> None:
    row = {
        "instruction": "<image>Describe it.",
        "input": "In one word.",
        "output": "Red",
        "system": "You see.",
        "history": [["Hello", "Hi"]],
        "images": ["a.png"],
    }
    sample = read(row)
    assert turns(sample) == [
        ("system", "You see."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "#Describe it.\nIn one word."),
    ]
    assert sample.answer == "Red"
    empty = read({"instruction": "Add 1 and 1.", "input": "", "output": "2", "history": [], "system": ""})
    assert (turns(empty), empty.answer, sorted(empty.meta)) == ([("user", "Add 1 and 1.")], "2", ["source", "split"])
    pair = read({"instruction": "Hi", "input": "", "chosen": "Hello", "rejected": "No"})
    assert pair.meta["chosen"] == said("Hello")


def test_openai_parts_with_urls_paths_and_bytes(read: Reader) -> None:
    uri = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    content = [
        {"type": "text", "text": "Which is <image>? "},
        {"type": "image_url", "image_url": {"url": uri, "detail": "low"}},
        {"type": "image", "image": "a.png"},
        {"type": "image", "image": PNG},
        {"type": "input_image", "image_url": uri},
        {"type": "input_text", "text": "!"},
    ]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": content}]
    assert turns(read({"messages": messages})) == [("system", "Be brief."), ("user", "Which is <image>? ####!")]


def test_messages_as_json_text_are_read_and_other_text_is_not_a_prompt(read: Reader) -> None:
    assert turns(read({"messages": '[{"role": "user", "content": "Hi"}]'})) == [("user", "Hi")]
    assert "as JSON text" in read.error({"messages": "Hi"}).message


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ({"prompt": "a", "videos": ["v.mp4"]}, "videos", "only images and text"),
        ({"conversations": [{"from": "robot", "value": "x"}]}, "conversations[0].from", "(got 'robot')"),
        ({"instruction": "a", "history": [["only"]]}, "history[0]", "a pair of question and answer"),
        ({"instruction": 5}, "instruction", "and input must be text"),
        ({"prompt": "a", "chosen": [{"role": "user", "content": "x"}], "rejected": "y"}, "chosen", "assistant turn"),
        ({"chosen": "x", "rejected": "y"}, "chosen", "no text in common"),
        (
            {
                "prompt": "a",
                "chosen": [{"role": "assistant", "content": [{"type": "image", "image": PNG}]}],
                "rejected": "y",
            },
            "chosen",
            "holds an image",
        ),
    ],
)
def test_a_row_that_fits_no_shape_says_where(read: Reader, row: dict[str, Any], field: str, message: str) -> None:
    error = read.error(row)
    assert (error.row, error.field) == (7, field)
    assert message in error.message


def test_mapping_takes_columns_by_name_path_and_fixed_text(read: Reader) -> None:
    row = {"q": "Find x.", "meta": {"label": 4}, "pic": "a.png", "prompt": "not this", "n": 1}
    mapping = parse_mapping(["prompt=q", "answer=meta.label", "images=pic", 'system="Be brief."'])
    sample = read(row, mapping=mapping, images_first=True)
    assert turns(sample) == [("system", "Be brief."), ("user", "#Find x.")]
    assert (sample.answer, sample.meta["n"], sample.meta["prompt"]) == ("4", 1, "not this")
    assert "q" not in sample.meta


def test_d31_a_mapping_to_a_missing_column_lists_those_that_there_are(read: Reader) -> None:
    error = read.error({"question": "a", "label": 1}, mapping=(("answer", "lable"),))
    assert error.field == "lable"
    assert error.message == "no such column, which the mapping names; columns are question, label; nearest: label"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["answer"], "has no '='"),
        (["anwser=label"], "no field 'anwser'.*did you mean 'answer'"),
        (["answer="], "names no column"),
        (["answer=a", "answer=b"], "given twice"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ReadOptions(mapping=parse_mapping(texts))


def test_images_without_a_place_go_first_only_when_asked(read: Reader) -> None:
    row = {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Which?"}], "images": [PNG, PNG]}
    assert "--images-first" in read.error(row).message
    assert turns(read(row, images_first=True)) == [("system", "s"), ("user", "##Which?")]
    placed = {"prompt": "Which <image>?", "image": PNG}
    assert turns(read(placed, images_first=True)) == [("user", "Which #?")]


def test_file_names_of_a_metadata_file_may_be_several(read: Reader) -> None:
    assert turns(read({"file_names": ["a.png", "a.png"], "question": "Same?"})) == [("user", "##Same?")]


def test_a_preferred_answer_is_the_answer_to_learn_when_mapped(read: Reader) -> None:
    sample = read({"prompt": "a", "good": "x", "bad": "y"}, mapping=(("chosen", "good"), ("rejected", "bad")))
    assert sample.meta["chosen"] == said("x")
    assert sample.messages == (Message("user", (TextPart("a"),)),)
