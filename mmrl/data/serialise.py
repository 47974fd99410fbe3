"""A Sample as JSON values and back, the same wherever samples are stored, shown or exported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mmrl.types import ContentPart, ImagePart, ImageRef, Message, Sample, TextPart

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return _ENCODER.encode(value)


def sample_to_dict(sample: Sample) -> dict[str, Any]:
    """{id, messages, answer, meta}, the messages as below."""
    return {
        "id": sample.id,
        "messages": messages_to_json(sample.messages),
        "answer": sample.answer,
        "meta": dict(sample.meta),
    }


def sample_from_dict(values: Mapping[str, Any]) -> Sample:
    """The sample that `sample_to_dict` wrote."""
    return Sample(values["id"], messages_from_json(values["messages"]), values["answer"], values["meta"])


def messages_to_json(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """[{role, content: [{type: text, text} or {type: image, sha256, width, height}]}]"""
    return [
        {"role": message.role, "content": [_part_to_json(part) for part in message.content]} for message in messages
    ]


def messages_from_json(rows: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages that `messages_to_json` wrote."""
    return tuple(Message(row["role"], tuple(_part_from_json(part) for part in row["content"])) for row in rows)


def image_to_dict(image: ImageRef) -> dict[str, Any]:
    """{sha256, size: [width, height]}"""
    return {"sha256": image.sha256, "size": [image.width, image.height]}


def _part_to_json(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    image = part.image
    return {"type": "image", "sha256": image.sha256, "width": image.width, "height": image.height}


def _part_from_json(part: Mapping[str, Any]) -> ContentPart:
    if part["type"] == "text":
        return TextPart(part["text"])
    return ImagePart(ImageRef(part["sha256"], part["width"], part["height"]))
