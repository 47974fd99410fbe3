"""A conversation as records, a row for each answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from console.services.conversations import Conversation
from console.services.exports import Export, Record
from mmrl.data.images import ImageStore
from mmrl.data.serialise import messages_to_json


def export_of(conversation: Conversation) -> Export:
    labels = ", ".join(column.label for column in conversation.columns)
    return Export(
        name=f"chat-{conversation.id}",
        title=f"Conversation with {labels}",
        records=lambda: _records(conversation),
        total=len(conversation.turns) * len(conversation.columns),
        about={
            "checkpoints": labels,
            "begun": datetime.fromtimestamp(conversation.created_at, UTC).isoformat(timespec="seconds"),
            "system": conversation.system or "none",
        },
        shared=("question", "temperature", "top_p", "max_tokens", "seed"),
        content=content_of(conversation),
    )


def content_of(conversation: Conversation) -> str:
    """Another one with each word that an answer grows by."""
    replies = [asdict(reply) for turn in conversation.turns for reply in turn.replies]
    return hashlib.sha256(json.dumps(replies, sort_keys=True).encode()).hexdigest()


def _records(conversation: Conversation) -> Iterator[Record]:
    """messages: what the checkpoint was given, images by their SHA-256."""
    store = ImageStore()
    for number, turn in enumerate(conversation.turns):
        for column, (made, reply) in enumerate(zip(conversation.columns, turn.replies, strict=True)):
            yield Record(
                {
                    "turn": number + 1,
                    "checkpoint": made.label,
                    "question": turn.question,
                    "answer": reply.text,
                    "state": reply.state,
                    "finish_reason": reply.finish_reason,
                    "num_tokens": reply.num_tokens,
                    "seconds": reply.seconds,
                    "error": reply.error,
                    "temperature": turn.sampling.temperature,
                    "top_p": turn.sampling.top_p,
                    "max_tokens": turn.sampling.max_tokens,
                    "seed": turn.sampling.seed,
                    "messages": messages_to_json(conversation.prompt(number, column)),
                },
                section=f"Question {number + 1}",
                images=tuple(store.path(image) for image in turn.images),
            )
