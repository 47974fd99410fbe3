"""What the page Label asks while people judge: which item comes next for whom, and how far each has come."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from console.services.label_drawing import Item
from mmrl.jobs.marks import Mark

TAGS = (
    "misread the image",
    "wrong answer",
    "wrong reasoning",
    "wrong form",
    "made up",
    "too long",
    "unclear",
    "unsafe",
)
"""Reasons to choose from; each person may add their own."""
MAX_REASON = 500


@dataclass(frozen=True)
class Begun:
    """What a person has done of an item that they have not judged. placed: places of the answers from the best on,
    those that are as good together. Skipped items come last."""

    reason: str = ""
    tags: tuple[str, ...] = ()
    placed: tuple[tuple[int, ...], ...] = ()
    is_skipped: bool = False

    @classmethod
    def of(cls, payload: Mapping[str, Any] | None) -> Begun:
        values = payload or {}
        return cls(
            str(values.get("reason") or ""),
            tuple(values.get("tags") or ()),
            tuple(tuple(level) for level in values.get("placed") or ()),
            bool(values.get("is_skipped")),
        )

    def payload(self) -> dict[str, Any]:
        return {
            "reason": self.reason[:MAX_REASON],
            "tags": list(self.tags),
            "placed": [list(level) for level in self.placed],
            "is_skipped": self.is_skipped,
        }

    def place(self, answer: int, *, beside_last: bool) -> tuple[tuple[int, ...], ...]:
        """With one more answer: as good as the last ones, or next after them."""
        if beside_last and self.placed:
            return (*self.placed[:-1], (*self.placed[-1], answer))
        return (*self.placed, (answer,))

    def without_last(self) -> tuple[tuple[int, ...], ...]:
        last = self.placed[-1][:-1]
        return (*self.placed[:-1], last) if last else self.placed[:-1]


@dataclass(frozen=True)
class Progress:
    """How many of the items a person has judged, how many they only skipped, and when they judged last."""

    user_id: str
    num_judged: int
    last_at: datetime | None


def next_item(items: Sequence[Item], marks: Iterable[Mark], user_id: str, skipped: Sequence[str] = ()) -> Item | None:
    """The first that this person has not judged, in an order of their own; skipped ones come last, the one that was
    skipped longest ago first."""
    done = {mark.item for mark in marks if mark.user_id == user_id}
    left = [item for item in items if item.key not in done]
    random.Random(f"order {user_id}").shuffle(left)
    order = {key: place for place, key in enumerate(skipped)}
    return min(left, key=lambda item: order.get(item.key, -1), default=None)


def of_items(items: Iterable[Item], marks: Iterable[Mark]) -> list[Mark]:
    keys = {item.key for item in items}
    return [mark for mark in marks if mark.item in keys]


def last_of(marks: Iterable[Mark], user_id: str) -> Mark | None:
    """What the person judged last."""
    return max((mark for mark in marks if mark.user_id == user_id), key=lambda mark: mark.id, default=None)


def progress(marks: Iterable[Mark]) -> list[Progress]:
    """Of each person who judged anything, the busiest first. marks: of the items in question."""
    own: dict[str, list[Mark]] = {}
    for mark in marks:
        own.setdefault(mark.user_id, []).append(mark)
    found = [Progress(user, len(theirs), max(mark.created_at for mark in theirs)) for user, theirs in own.items()]
    return sorted(found, key=lambda each: (-each.num_judged, each.user_id))


def ranks_of(placed: Sequence[Collection[int]], num: int) -> list[int]:
    """The rank of each answer by its place. Raises ValueError unless each is placed once."""
    ranks = {answer: rank for rank, level in enumerate(placed, start=1) for answer in level}
    if Counter(answer for level in placed for answer in level) != Counter(range(num)):
        raise ValueError(f"each of {num} answers has to be placed once (got {list(map(list, placed))})")
    return [ranks[answer] for answer in range(num)]


def known_tags(marks: Iterable[Mark], user_id: str) -> list[str]:
    """Those that all may choose from, and those that this person added, the most used first. Others' own would tell
    somebody who judges blind what they thought of an answer."""
    used = Counter(tag for mark in marks for tag in mark.tags if mark.user_id == user_id and tag not in TAGS)
    return [*TAGS, *(tag for tag, _ in used.most_common())]
