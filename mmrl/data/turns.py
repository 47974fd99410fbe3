"""The turns of a row before its images are read: from chat messages, or from one column of plain text.

A message has `role` and `content`, or `from` and `value` (ShareGPT, where the user is `human` and the model `gpt`).
In plain text each `<image>` of a user or tool turn is a slot that takes the next image of the row's image column.
In a list of content parts, images are parts of their own and text is taken literally.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Any, get_args

from mmrl.data.rows import RowProblem, describe, name_list
from mmrl.types import Role

PLACEHOLDER = "<image>"
PROMPT_COLUMNS = ("messages", "conversations", "prompt", "problem", "question", "instruction")
MESSAGE_COLUMNS = ("messages", "conversations")
ROLES: tuple[Role, ...] = get_args(Role)
_ROLE_NAMES: dict[str, Role] = {role: role for role in ROLES} | {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "developer": "system",
}

_MESSAGES_BEGIN = re.compile(r"""\s*\[\s*\{\s*["'](role|content|from|value)["']\s*:""")


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
    if not values:
        raise RowProblem("", "the row is empty; give it a prompt or remove it")
    near = [(column, name) for column in PROMPT_COLUMNS for name in get_close_matches(column, list(values), n=1)]
    nearest = max(near, key=lambda pair: SequenceMatcher(None, *pair).ratio(), default=None)
    hint = f"; is {nearest[1]!r} meant to be {nearest[0]!r}? then rename it" if nearest else ""
    raise RowProblem(
        "",
        f"no prompt: needs one of {', '.join(PROMPT_COLUMNS)}; columns are {name_list(values)}{hint}; or name the "
        "column with --map prompt=COLUMN",
    )


def read_turns(prompt: Any, field: str) -> list[Turn]:
    """The turns of a prompt: one user turn for text, a turn for each message otherwise. field: the column it is in."""
    if isinstance(prompt, str) and field in MESSAGE_COLUMNS:
        prompt = _from_json_text(prompt, field)
    if isinstance(prompt, str) and field == "prompt":
        prompt = _messages_in_text(prompt)
    if isinstance(prompt, str):
        return [user_turn(prompt)]
    if not isinstance(prompt, list | tuple) or not prompt:
        raise RowProblem(field, f"must be text or a list of messages (got {describe(prompt)})")
    return [read_turn(message, f"{field}[{index}]") for index, message in enumerate(prompt)]


def user_turn(text: str) -> Turn:
    """A user's turn of plain text, each `<image>` in it a slot."""
    return Turn("user", _split(text))


def read_turn(message: Any, field: str) -> Turn:
    """The turn that one message is."""
    if not isinstance(message, Mapping):
        raise RowProblem(field, f"must be a message with `role` and `content` (got {describe(message)})")
    is_sharegpt = message.get("role") is None and message.get("from") is not None
    role_key, content_key = ("from", "value") if is_sharegpt else ("role", "content")
    name, content = message.get(role_key), message.get(content_key)
    role = _ROLE_NAMES.get(name) if isinstance(name, str) else None
    if role is None:
        known = ("human", "gpt", "observation", "function_call", "system") if is_sharegpt else ROLES
        raise RowProblem(f"{field}.{role_key}", f"must be one of {', '.join(known)} (got {describe(name)})")
    if not content and message.get("tool_calls"):
        raise RowProblem(
            f"{field}.tool_calls", "calls of tools in OpenAI's form cannot be read; write the call as text in `content`"
        )
    if isinstance(content, str):
        return Turn(role, _split(content) if role in ("user", "tool") else (content,))
    if not isinstance(content, list | tuple):
        raise RowProblem(f"{field}.{content_key}", f"must be text or a list of parts (got {describe(content)})")
    return Turn(role, tuple(_read_part(part, f"{field}.{content_key}[{index}]") for index, part in enumerate(content)))


def _from_json_text(text: str, field: str) -> Sequence[Any]:
    """Messages that a table keeps as text."""
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowProblem(field, f"must be a list of messages, or one as JSON text (got {describe(text)})") from error
    if not isinstance(messages, list):
        raise RowProblem(field, f"must be a list of messages (got {describe(messages)})")
    return messages


def _messages_in_text(text: str) -> str | list[Any]:
    """The messages that a table keeps as JSON text in `prompt`, as verl's do; any other text as it is."""
    if not _MESSAGES_BEGIN.match(text):
        return text
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowProblem(
            "prompt", f"begins like a list of messages and is no JSON ({describe(text)}); write it with json.dumps"
        ) from error
    return messages if isinstance(messages, list) else text


def _read_part(part: Any, field: str) -> str | Slot | InlineImage:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RowProblem(field, f"must be a part with `type` (got {describe(part)})")
    kind = part.get("type") or next((key for key in ("text", "image", "image_url") if part.get(key) is not None), None)
    if kind in ("text", "input_text", "output_text"):
        if not isinstance(part.get("text"), str):
            raise RowProblem(f"{field}.text", f"must be text (got {describe(part.get('text'))})")
        return part["text"]
    if kind in ("image_url", "input_image"):
        address = part.get("image_url")
        return InlineImage(address.get("url") if isinstance(address, Mapping) else address, f"{field}.image_url")
    if kind == "image":
        return _read_image_part(part, field)
    got = describe(part if kind is None else kind)
    raise RowProblem(f"{field}.type", f"must be text, image or image_url (got {got})")


def _read_image_part(part: Mapping[str, Any], field: str) -> Slot | InlineImage:
    for key in ("image", "url", "path", "base64"):
        if part.get(key) is not None:
            return InlineImage(part[key], f"{field}.{key}")
    if part.get("source") is not None:
        raise RowProblem(
            f"{field}.source",
            'an image in Anthropic\'s form; write {"type": "image", "base64": …}, or "url" or "path", in its place',
        )
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
