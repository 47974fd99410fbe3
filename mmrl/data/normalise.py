"""From a raw row to a Sample: its turns, an image for each slot, its answer, and the rest of its columns as meta."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from PIL import Image

from mmrl.data.benchmarks import benchmark_row
from mmrl.data.columns import FILE_NAME_COLUMNS, IMAGE_COLUMNS, map_columns
from mmrl.data.image_forms import resolve_image
from mmrl.data.options import PLAIN, ReadOptions
from mmrl.data.preference import JUDGED, PAIR
from mmrl.data.rows import RawRow, RowError, RowProblem, describe
from mmrl.data.serialise import canonical
from mmrl.data.shapes import ANSWER_COLUMN, read_shape
from mmrl.data.turns import PLACEHOLDER, PROMPT_COLUMNS, InlineImage, Slot, Turn
from mmrl.data.unused import numbered_images, place_numbered, refuse_empty_places, refuse_lost_images
from mmrl.errors import DataError
from mmrl.types import ContentPart, ImagePart, ImageRef, Message, Sample, TextPart

ImageSink = Callable[[bytes | Image.Image], ImageRef]
"""Takes an image and returns its reference: `ImageStore.add`, or `inspect_image`, which writes nothing."""


def normalise_row(
    row: RawRow, *, file: str, split: str, root: Path, add_image: ImageSink, options: ReadOptions = PLAIN
) -> Sample | RowError:
    """The row as a Sample, or what is wrong with it.

    root: the folder that relative image paths start from and that none may leave.
    """
    try:
        return _sample(row.values, {"source": file, "split": split}, root=root, add_image=add_image, options=options)
    except RowProblem as problem:
        return RowError(file, row.number, problem.field, problem.message)


def make_sample(messages: tuple[Message, ...], answer: str | None, meta: Mapping[str, Any]) -> Sample:
    """A sample with its id: a hash of roles, texts, image hashes and answer; of meta only answers that were compared or
    judged count, which make rows of one prompt different."""
    content = {
        "messages": [[message.role, [_part_key(part) for part in message.content]] for message in messages],
        "answer": answer,
        **{name: meta[name] for names in (PAIR, JUDGED) if all(each in meta for each in names) for name in names},
    }
    return Sample(hashlib.sha256(canonical(content).encode("utf-8")).hexdigest()[:16], messages, answer, meta)


def _sample(
    values: Mapping[str, Any], origin: Mapping[str, str], *, root: Path, add_image: ImageSink, options: ReadOptions
) -> Sample:
    if options.benchmark is not None:
        values = benchmark_row(options.benchmark, values)
    columns = map_columns(values, options.mapping)
    shape = read_shape(columns.visible)
    image_column, images = _image_column(columns.visible, shape.turns)
    numbered = {} if images else numbered_images(columns.visible)
    placed = place_numbered(shape.turns, numbered) if numbered else shape.turns
    turns, answer = _split_off_answer(placed, _answer_text(shape.answer), shape.column)
    if image_column in FILE_NAME_COLUMNS or options.images_first:
        turns = _images_first(turns, len(images))
    _check_counts(turns, images, shape.column, image_column)
    _check_prompt(turns, shape.column)
    slots = iter(images)
    messages = tuple(
        Message(
            turn.role,
            tuple(_content(part, slots, root=root, add_image=add_image, options=options) for part in turn.parts),
        )
        for turn in turns
    )
    used = {image_column, *IMAGE_COLUMNS, *shape.used}
    used |= {name for name in PROMPT_COLUMNS if columns.visible.get(name) is None}
    used |= {part.field for turn in turns for part in turn.parts if isinstance(part, InlineImage)}
    rest = {name: value for name, value in columns.visible.items() if name not in used}
    mapped = {column.partition(".")[0] for _, column in options.mapping}
    refuse_lost_images(
        {name: value for name, value in rest.items() if name not in mapped},
        has_images=any(turn.has_images for turn in turns),
    )
    if not any(turn.has_images for turn in turns):
        refuse_empty_places(turns, columns.visible)
    meta = {key: _to_json(value, key) for key, value in (rest | dict(columns.hidden)).items()}
    return make_sample(messages, answer, {**origin, **meta, **shape.extra})


def _image_column(values: Mapping[str, Any], turns: list[Turn]) -> tuple[str, list[InlineImage]]:
    """The column that holds the row's images, and the images with the field that each came from."""
    filled = [column for column in IMAGE_COLUMNS if not _is_empty(values.get(column))]
    if len(filled) > 1:
        raise RowProblem("image", "both `image` and `images` hold images; keep one of them")
    brings_own = any(isinstance(part, InlineImage) for turn in turns for part in turn.parts)
    if not filled and not brings_own:
        filled = [column for column in FILE_NAME_COLUMNS if not _is_empty(values.get(column))][:1]
    if not filled:
        return "images", []
    column, value = filled[0], values[filled[0]]
    if isinstance(value, list | tuple):
        return column, [InlineImage(item, f"{column}[{index}]") for index, item in enumerate(value)]
    return column, [InlineImage(value, column)]


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and not value)


def _answer_text(answer: Any) -> str | None:
    if answer is None or isinstance(answer, str):
        return answer
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)  # a column of whole numbers with gaps comes out of pandas as floating point
    return json.dumps(_to_json(answer, ANSWER_COLUMN), ensure_ascii=False)


def _split_off_answer(turns: list[Turn], answer: str | None, column: str) -> tuple[list[Turn], str | None]:
    """A last turn of the assistant is the reference answer; beside an `answer` it stays, as a text for SFT."""
    last = turns[-1]
    if last.role != "assistant":
        return turns, answer
    if last.has_images:
        raise RowProblem(f"{column}[{len(turns) - 1}]", "is what the model learns to write and holds an image")
    return (turns[:-1], last.text) if answer is None else (turns, answer)


def _images_first(turns: list[Turn], num_images: int) -> list[Turn]:
    """Images that have no place in any text go before that of the first user turn."""
    if any(turn.has_images for turn in turns):
        return turns
    for index, turn in enumerate(turns):
        if turn.role == "user":
            return [*turns[:index], Turn("user", (*[Slot()] * num_images, *turn.parts)), *turns[index + 1 :]]
    return turns


def _check_counts(turns: list[Turn], images: list[InlineImage], column: str, image_column: str) -> None:
    num_slots = sum(isinstance(part, Slot) for turn in turns for part in turn.parts)
    if num_slots == len(images):
        return
    if num_slots:
        advice = f"To keep {PLACEHOLDER} as text, write the row as `messages` whose content is a list of parts"
    else:
        advice = f"Write {PLACEHOLDER} where each belongs, or have them put before the text with --images-first"
    raise RowProblem(
        column,
        f"{num_slots} {PLACEHOLDER} placeholder(s) but {len(images)} image(s) in `{image_column}`; there must be as "
        f"many. {advice}",
    )


def _check_prompt(turns: list[Turn], column: str) -> None:
    prompt = turns[:-1] if turns and turns[-1].role == "assistant" else turns
    if not prompt or prompt[-1].role not in ("user", "tool"):
        got = f"a {prompt[-1].role} turn" if prompt else "no turn"
        raise RowProblem(column, f"must have a user or tool turn that the model answers at its end (got {got})")
    if not any(turn.has_images or turn.text.strip() for turn in prompt if turn.role != "system"):
        raise RowProblem(column, "is empty: neither text nor image")


def _content(
    part: str | Slot | InlineImage,
    slots: Iterator[InlineImage],
    *,
    root: Path,
    add_image: ImageSink,
    options: ReadOptions,
) -> ContentPart:
    if isinstance(part, str):
        return TextPart(part)
    image = next(slots) if isinstance(part, Slot) else part
    resolved = resolve_image(image.value, root=root, field=image.field, options=options)
    try:
        return ImagePart(add_image(resolved))
    except DataError as error:
        origin = f"{image.value!r}: " if isinstance(image.value, str) and len(image.value) <= 200 else ""
        raise RowProblem(image.field, f"{origin}{error}") from error


def _part_key(part: ContentPart) -> dict[str, str]:
    return {"text": part.text} if isinstance(part, TextPart) else {"image": part.image.sha256}


def _to_json(value: Any, field: str) -> Any:
    """The value in JSON's own types; dates and decimals become text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, f"{field}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item, f"{field}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | datetime.timedelta):
        return str(value)
    raise RowProblem(field, f"holds {describe(value)}, which cannot be kept beside a sample; leave this column out")
