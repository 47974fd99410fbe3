"""A conversation of the Playground as something to judge: what was marked there counts here; others judge it blind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from console.services.conversations import Conversation
from console.services.keeping import answer_of, check_comparable, prompt_of, source_of
from console.services.label_drawing import Candidate, ItemPool
from console.services.label_items import ItemSource
from mmrl.data.images import ImageStore
from mmrl.errors import DataError
from mmrl.types import Sample


def chat_source(conversation: Conversation) -> ItemSource:
    """Each two answers of a question that can be compared, see `keeping.check_comparable`: the same items, under the
    same source, as marks that are given in the Playground."""
    store = ImageStore()
    labels = [column.label for column in conversation.columns]

    def image(sha256: str) -> Path | None:
        path = store.path(sha256)
        return path if path.is_file() else None

    return ItemSource(
        key=source_of(conversation),
        about=f"chat {conversation.id} with {' and '.join(dict.fromkeys(labels))}",
        pool=ItemPool(tuple(_pairs(conversation))),
        bases={column.label: Path(column.uri) for column in conversation.columns if Path(column.uri).is_dir()},
        image=image,
    )


def _pairs(conversation: Conversation) -> Iterator[tuple[Sample, tuple[Candidate, ...]]]:
    for turn in range(len(conversation.turns)):
        for both in combinations(range(len(conversation.columns)), 2):
            try:
                check_comparable(conversation, turn, *both)
            except DataError:
                continue
            candidates = (_candidate(conversation, turn, column) for column in both)
            yield prompt_of(conversation, turn, both[0]), tuple(sorted(candidates))


def _candidate(conversation: Conversation, turn: int, column: int) -> Candidate:
    text = conversation.turns[turn].replies[column].text
    return Candidate(answer_of(conversation, turn, column), text, None, conversation.columns[column].label)
