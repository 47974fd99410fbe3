"""A Sample as JSON values and back, the same wherever samples are stored, shown or exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mmrl.types import ContentPart, ImagePart, ImageRef, Message, Sample, TextPart

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return _ENCODER.encode(value)


def sample_to_dict(sample: Sample) -> dict[str, Any]:
    """{id, messages: [{role, content: [{type, text} or {type, sha256, size: [width, height]}]}], answer, meta}"""
    return {
        "id": sample.id,
        "messages": [
            {"role": message.role, "content": [_part_to_dict(part) for part in message.content]}
            for message in sample.messages
        ],
        "answer": sample.answer,
        "meta": dict(sample.meta),
    }


def sample_from_dict(values: Mapping[str, Any]) -> Sample:
    """The sample that `sample_to_dict` wrote."""
    messages = tuple(
        Message(message["role"], tuple(_part_from_dict(part) for part in message["content"]))
        for message in values["messages"]
    )
    return Sample(values["id"], messages, values["answer"], values["meta"])


def image_to_dict(image: ImageRef) -> dict[str, Any]:
    """{sha256, size: [width, height]}"""
    return {"sha256": image.sha256, "size": [image.width, image.height]}


def _part_to_dict(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image", **image_to_dict(part.image)}


def _part_from_dict(part: Mapping[str, Any]) -> ContentPart:
    if part["type"] == "text":
        return TextPart(part["text"])
    width, height = part["size"]
    return ImagePart(ImageRef(part["sha256"], width, height))
