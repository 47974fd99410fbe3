"""From rows to samples: prompts, images in every form, answers, meta, and what is wrong with a bad row."""

from __future__ import annotations

import base64
import datetime
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import RED, encoded, red_png
from PIL import Image

from mmrl.data.images import ImageStore
from mmrl.data.normalise import normalise_row
from mmrl.data.rows import RawRow, RowError
from mmrl.types import ImagePart, ImageRef, Message, Sample, TextPart


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "img").mkdir(parents=True)
    (folder / "img" / "a.png").write_bytes(red_png())
    return folder


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


class Reader:
    def __init__(self, root: Path, store: ImageStore) -> None:
        self.root, self.store = root, store

    def __call__(self, **values: Any) -> Sample:
        result = self.try_row(values)
        assert isinstance(result, Sample), result
        return result

    def error(self, **values: Any) -> RowError:
        result = self.try_row(values)
        assert isinstance(result, RowError), result
        return result

    def try_row(self, values: Mapping[str, Any]) -> Sample | RowError:
        row = RawRow(7, values)
        return normalise_row(row, file="f.jsonl", split="train", root=self.root, add_image=self.store.add)


@pytest.fixture
def read(root: Path, store: ImageStore) -> Reader:
    return Reader(root, store)


@pytest.fixture
def red(store: ImageStore) -> ImageRef:
    return store.add(red_png())


def user(*parts: str | ImageRef) -> Message:
    return Message("user", tuple(TextPart(part) if isinstance(part, str) else ImagePart(part) for part in parts))


def data_uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("column", ["prompt", "problem", "question"])
def test_placeholders_take_the_images_in_order(read: Reader, red: ImageRef, store: ImageStore, column: str) -> None:
    blue = encoded(Image.new("RGB", (30, 40), "blue"))
    sample = read(**{column: "Is <image> or <image>\nbluer?", "images": ["img/a.png", blue], "answer": "second"})
    assert sample.messages == (user("Is ", red, " or ", store.add(blue), "\nbluer?"),)
    assert sample.answer == "second"
    assert [(image.width, image.height) for image in sample.images] == [(32, 32), (30, 40)]


@pytest.mark.parametrize(("num_slots", "num_images"), [(0, 1), (2, 1), (1, 2)])
def test_d01_unequal_counts_of_placeholders_and_images_are_named_with_the_row(
    read: Reader, num_slots: int, num_images: int
) -> None:
    error = read.error(prompt="Look: " + "<image>" * num_slots, images=["img/a.png"] * num_images)
    assert (error.file, error.row, error.field) == ("f.jsonl", 7, "prompt")
    assert f"{num_slots} <image> placeholder(s) but {num_images} image(s) in `images`" in error.message


def test_d02_placeholder_word_in_content_parts_is_plain_text(read: Reader, red: ImageRef) -> None:
    text = "How do I convert this to an `<image>` tag?"
    content = [{"type": "image", "image": "img/a.png"}, {"type": "text", "text": text}]
    assert read(messages=[{"role": "user", "content": content}]).messages == (user(red, text),)


def test_d02_placeholder_word_in_plain_text_is_an_error_that_tells_how_to_keep_it(read: Reader) -> None:
    error = read.error(prompt="<image>What is an `<image>` tag?", image="img/a.png")
    assert "2 <image> placeholder(s) but 1 image(s) in `image`" in error.message
    assert "write the row as `messages` whose content is a list of parts" in error.message


def test_openai_chat_keeps_turns_and_reads_image_urls(read: Reader, red: ImageRef) -> None:
    sample = read(
        messages=[
            {"role": "system", "content": "Be brief. <image> is a word here."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_uri(red_png())}}]},
            {"role": "assistant", "content": "Red."},
            {"role": "user", "content": [{"type": "text", "text": "Sure?"}]},
        ],
        answer="yes",
    )
    assert [message.role for message in sample.messages] == ["system", "user", "assistant", "user"]
    assert sample.messages[0].text == "Be brief. <image> is a word here."
    assert sample.messages[1] == user(red)
    assert sample.answer == "yes"


def test_image_parts_without_image_take_the_column(read: Reader, red: ImageRef) -> None:
    content = [{"type": "image", "text": None}, {"type": "text", "text": "What?", "image": None}]
    sample = read(prompt=[{"role": "user", "content": content}], images=["img/a.png"])
    assert sample.messages == (user(red, "What?"),)


def test_last_assistant_turn_is_the_answer(read: Reader) -> None:
    sample = read(messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
    assert (sample.messages, sample.answer) == ((user("Hi"),), "Hello")


def test_last_assistant_turn_beside_an_answer_stays_as_text_to_learn(read: Reader) -> None:
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "So \\boxed{2}"}]
    sample = read(messages=turns, answer=2)
    assert sample.messages == (user("1+1?"), Message("assistant", (TextPart("So \\boxed{2}"),)))
    assert sample.answer == "2"


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"prompt": "  \n"}, "prompt", "is empty"),
        ({"prompt": None}, "prompt", "is null"),
        ({"prompt": 5}, "prompt", "must be text or a list of messages (got 5)"),
        ({"prompt": []}, "prompt", "must be text or a list of messages (got a list of 0)"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages", "(got a system turn)"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages", "(got no turn)"),
        ({"messages": ["x"]}, "messages[0]", "must be a message with `role` and `content` (got 'x')"),
        ({"messages": [{"role": "person", "content": "x"}]}, "messages[0].role", "(got 'person')"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "(got null)"),
        (
            {"messages": [{"role": "user", "content": [{"type": "video", "video": "x"}]}]},
            "messages[0].content[0].type",
            "must be text, image or image_url (got 'video')",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "must be text",
        ),
    ],
)
def test_prompt_of_a_wrong_shape_is_named(read: Reader, values: dict[str, Any], field: str, message: str) -> None:
    error = read.error(**values)
    assert error.field == field
    assert message in error.message


def test_d31_misnamed_column_is_met_with_the_columns_and_the_nearest_name(read: Reader) -> None:
    error = read.error(qestion="What?", answer="4")
    assert error.message == (
        "no prompt: needs one of messages, conversations, prompt, problem, question, instruction; columns are qestion, "
        "answer; is 'qestion' meant to be 'question'? then rename it; or name the column with --map prompt=COLUMN"
    )


def test_d03_every_form_of_an_image_gives_the_same_pixels(read: Reader, store: ImageStore) -> None:
    png = red_png()
    forms = [
        png,
        {"bytes": png, "path": None},
        {"bytes": None, "path": "img/a.png"},
        "img/a.png",
        data_uri(png),
        base64.b64encode(png).decode(),
        Image.new("RGB", (32, 32), RED),
    ]
    for form in forms:
        (image,) = read(prompt="<image>What?", image=form).images
        assert (np.asarray(store.open(image)) == np.array(RED, np.uint8)).all(), form


def test_base64_of_a_jpeg_is_not_taken_for_an_absolute_path(read: Reader) -> None:
    text = base64.b64encode(encoded(Image.new("RGB", (9, 8)), "JPEG")).decode()
    assert text.startswith("/9j/")
    assert read(prompt="<image>", image=text).images[0].width == 9


@pytest.mark.parametrize("kind", ["image/jpeg;charset=utf-8", "image/jpeg", "IMAGE/JPEG;name=a.jpg", ""])
def test_d04_data_uri_may_have_parameters(read: Reader, kind: str) -> None:
    uri = data_uri(encoded(Image.new("RGB", (9, 8)), "JPEG"), kind)
    assert read(prompt="<image>", image=uri).images[0].height == 8


def test_d05_column_may_hold_one_image_or_a_list_but_no_list_of_lists(read: Reader, red: ImageRef) -> None:
    for column in ("image", "images"):
        assert read(prompt="<image>", **{column: "img/a.png"}).images == (red,)
        assert read(prompt="<image>", **{column: ["img/a.png"]}).images == (red,)
    error = read.error(prompt="<image>", images=[["img/a.png"]])
    assert error.field == "images[0]"
    assert "a list inside the list of images; give one flat list of images" in error.message


def test_d07_empty_null_and_absent_images_all_mean_text_only(read: Reader) -> None:
    samples = [read(prompt="Hi", images=[]), read(prompt="Hi", images=None), read(prompt="Hi")]
    assert samples[0] == samples[1] == samples[2]
    assert samples[0].images == ()


def test_d06_dict_and_decoded_image_mix_in_either_order(read: Reader) -> None:
    forms = [{"bytes": None, "path": "img/a.png"}, Image.new("RGB", (4, 4))]
    for order in (forms, forms[::-1]):
        assert len(read(prompt="<image><image>", images=order).images) == 2


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (5, "not an image: 5"),
        (True, "not an image: true"),
        ({"bytes": None, "path": None}, "needs `bytes` or `path`"),
        ({"bytes": 3}, "must be bytes or base64 text (got 3)"),
        ("img/none.png", "no file 'img/none.png' in the data set's folder"),
        ("img", "no file 'img' in the data set's folder"),
        ("", "not a path: ''"),
        ("a\0b", "not a path"),
        ("x" * 5000, "cannot be read"),
        ("/etc/hostname", "is an absolute path"),
        ("~/a.png", "is an absolute path"),
        ("C:\\a.png", "is an absolute path"),
        ("\\\\host\\a.png", "is an absolute path"),
        ("../secret.png", "leads out of the data set's folder"),
        ("img/../../secret.png", "leads out of the data set's folder"),
        ("link.png", "leads out of the data set's folder"),
        ("file:///etc/hostname", "is an address (file:), which is not read"),
        ("http://169.254.169.254/latest", "is an address (http:), which is not read"),
        ("https://example.org/a.png", "is an address (https:), which is not read"),
        ("data:image/png,abc", "must read data:image/…;base64,…"),
        ("data:text/html;base64,QUJD", "of type 'text/html'"),
        ("data:image/png;base64,###", "not valid base64"),
        (b"hello", "not an image that can be read"),
    ],
)
def test_d03_x12_anything_else_is_a_row_error_and_never_text_only(
    read: Reader, root: Path, form: object, message: str
) -> None:
    (root.parent / "secret.png").write_bytes(red_png())
    (root / "link.png").symlink_to(root.parent / "secret.png")
    error = read.error(prompt="<image>", images=[form])
    assert error.field.startswith("images[0]")
    assert message in error.message
    assert len(str(error)) < 500


def test_row_with_a_bad_image_names_its_size_and_file(read: Reader, root: Path) -> None:
    (root / "cut.png").write_bytes(red_png()[:60])
    error = read.error(prompt="<image>", image="cut.png")
    assert error.field == "image"
    assert error.message.startswith("'cut.png': ")


def test_d30_relative_paths_start_at_the_data_set_wherever_the_process_runs(
    read: Reader, red: ImageRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not os.path.exists("img/a.png")
    assert read(prompt="<image>", image="img/a.png").images == (red,)


def test_both_image_columns_filled_is_an_error(read: Reader) -> None:
    error = read.error(prompt="<image>", image="img/a.png", images=["img/a.png"])
    assert "both `image` and `images` hold images" in error.message


def test_file_name_of_a_folder_goes_before_the_text_unless_it_has_a_placeholder(read: Reader, red: ImageRef) -> None:
    assert read(file_name="img/a.png", question="What?").messages == (user(red, "What?"),)
    assert read(file_name="img/a.png", question="What is <image>?").messages == (user("What is ", red, "?"),)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("3", "3"),
        (3, "3"),
        (2.5, "2.5"),
        (2.0, "2"),
        (True, "true"),
        ([1, 2], "[1, 2]"),
        ({"x": "é"}, '{"x": "é"}'),
        (None, None),
    ],
)
def test_answer_becomes_text(read: Reader, answer: object, text: str | None) -> None:
    assert read(prompt="?", answer=answer).answer == text


def test_other_columns_become_meta_in_json_types(read: Reader) -> None:
    sample = read(
        messages=[{"role": "user", "content": "?"}],
        problem=None,
        day=datetime.date(2026, 1, 2),
        price=Decimal("1.50"),
        boxes=[{"x": (1, 2)}],
    )
    assert sample.meta == {
        "source": "f.jsonl",
        "split": "train",
        "day": "2026-01-02",
        "price": "1.50",
        "boxes": [{"x": [1, 2]}],
    }


def test_rows_own_source_wins_over_the_file_name(read: Reader) -> None:
    assert read(prompt="?", source="exam").meta["source"] == "exam"


def test_bytes_in_another_column_are_refused(read: Reader) -> None:
    error = read.error(prompt="?", extra=[b"abc"])
    assert (error.field, error.message) == (
        "extra[0]",
        "holds 3 bytes, which cannot be kept beside a sample; leave this column out",
    )


def test_id_follows_from_the_content_alone(read: Reader) -> None:
    first = read(prompt="<image>What?", images=["img/a.png"], answer="x", note=1)
    same = read(problem="<image>What?", image=red_png(), answer="x", note=2)
    assert first.id == same.id
    assert len(first.id) == 16
    others = [
        read(prompt="<image>What?", images=["img/a.png"], answer="y"),
        read(prompt="<image>What", images=["img/a.png"], answer="x"),
        read(prompt="What?<image>", images=["img/a.png"], answer="x"),
        read(prompt="<image>What?", images=[red_png(31)], answer="x"),
        read(prompt="<image>What?", images=["img/a.png"]),
    ]
    assert len({first.id, *(other.id for other in others)}) == 6


def test_id_of_a_text_row_is_the_same_on_every_machine(read: Reader) -> None:
    # printf '%s' '{"answer":"2","messages":[["user",[{"text":"1+1"}]]]}' | sha256sum
    assert read(prompt="1+1", answer="2").id == "66d19dcd749c09de"
