"""Messages as JSON: roles with content parts of type text, or image by SHA-256 and size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mmrl.types import ContentPart, ImagePart, ImageRef, Message, TextPart


def messages_to_json(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [
        {"role": message.role, "content": [_part_to_json(part) for part in message.content]} for message in messages
    ]


def messages_from_json(rows: Iterable[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(row["role"], tuple(_part_from_json(part) for part in row["content"])) for row in rows)


def _part_to_json(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    image = part.image
    return {"type": "image", "sha256": image.sha256, "width": image.width, "height": image.height}


def _part_from_json(part: dict[str, Any]) -> ContentPart:
    if part["type"] == "text":
        return TextPart(part["text"])
    return ImagePart(ImageRef(part["sha256"], part["width"], part["height"]))
