"""The turns of a row before its images are read: from chat messages, or from one column of plain text.

In plain text each `<image>` of a user or tool turn is a slot that takes the next image of the row's image column.
In a list of content parts, images are parts of their own and text is taken literally.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from mmrl.data.rows import RowProblem, describe
from mmrl.types import Role

PLACEHOLDER = "<image>"
PROMPT_COLUMNS = ("messages", "prompt", "problem", "question")
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Slot:
    """A place for the next image of the row's image column."""


@dataclass(frozen=True)
class InlineImage:
    """An image that its content part brings along, in any accepted form."""

    value: Any
    field: str


@dataclass(frozen=True)
class Turn:
    role: Role
    parts: tuple[str | Slot | InlineImage, ...]

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def has_images(self) -> bool:
        return any(not isinstance(part, str) for part in self.parts)


def prompt_column(values: Mapping[str, Any]) -> str:
    """The first of PROMPT_COLUMNS that the row fills; a problem that names the nearest column if none is there."""
    for column in PROMPT_COLUMNS:
        if values.get(column) is not None:
            return column
    for column in PROMPT_COLUMNS:
        if column in values:
            raise RowProblem(column, "is null; it must hold the prompt")
    near = [(column, name) for column in PROMPT_COLUMNS for name in get_close_matches(column, list(values), n=1)]
    hint = f"; is {near[0][1]!r} meant to be {near[0][0]!r}? then rename it" if near else ""
    raise RowProblem("", f"no prompt: needs one of {', '.join(PROMPT_COLUMNS)}; columns are {', '.join(values)}{hint}")


def read_turns(values: Mapping[str, Any], column: str) -> list[Turn]:
    """The turns in the column: one user turn for text, a turn for each message otherwise."""
    prompt = values[column]
    if isinstance(prompt, str):
        return [Turn("user", _split(prompt))]
    if not isinstance(prompt, list | tuple) or not prompt:
        raise RowProblem(column, f"must be text or a list of messages (got {describe(prompt)})")
    return [_read_turn(message, f"{column}[{index}]") for index, message in enumerate(prompt)]


def _read_turn(message: Any, field: str) -> Turn:
    if not isinstance(message, Mapping):
        raise RowProblem(field, f"must be a message with `role` and `content` (got {describe(message)})")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise RowProblem(f"{field}.role", f"must be one of {', '.join(ROLES)} (got {describe(role)})")
    if isinstance(content, str):
        return Turn(role, _split(content) if role in ("user", "tool") else (content,))
    if not isinstance(content, list | tuple):
        raise RowProblem(f"{field}.content", f"must be text or a list of parts (got {describe(content)})")
    return Turn(role, tuple(_read_part(part, f"{field}.content[{index}]") for index, part in enumerate(content)))


def _read_part(part: Any, field: str) -> str | Slot | InlineImage:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RowProblem(field, f"must be a part with `type` (got {describe(part)})")
    kind = part.get("type") or next((key for key in ("text", "image", "image_url") if part.get(key) is not None), None)
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise RowProblem(f"{field}.text", f"must be text (got {describe(part.get('text'))})")
        return part["text"]
    if kind == "image_url":
        address = part.get("image_url")
        return InlineImage(address.get("url") if isinstance(address, Mapping) else address, f"{field}.image_url")
    if kind == "image":
        return _read_image_part(part, field)
    raise RowProblem(f"{field}.type", f"must be text, image or image_url (got {describe(part.get('type'))})")


def _read_image_part(part: Mapping[str, Any], field: str) -> Slot | InlineImage:
    for key in ("image", "url", "path", "base64"):
        if part.get(key) is not None:
            return InlineImage(part[key], f"{field}.{key}")
    if part.get("bytes") is not None:
        return InlineImage({"bytes": part["bytes"]}, field)
    return Slot()


def _split(text: str) -> tuple[str | Slot, ...]:
    parts: list[str | Slot] = []
    for index, piece in enumerate(text.split(PLACEHOLDER)):
        if index:
            parts.append(Slot())
        if piece:
            parts.append(piece)
    return tuple(parts)
