"""What was read from files that never change, kept for the next look, within so many bytes: the oldest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar

from mmrl.runs.records import GroupRecord, ResponseRecord

ValueT = TypeVar("ValueT")


class KeptReads(Generic[ValueT]):
    """max_bytes: of all values together; one that is larger is given and not kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[Hashable, tuple[ValueT, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, read: Callable[[], ValueT], size_of: Callable[[ValueT], int]) -> ValueT:
        """What `read` gives, read once as long as it is kept; what it raises is raised and not kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        value = read()
        size = size_of(value)
        with self._lock:
            if key not in self._kept and size <= self._max_bytes:
                self._kept[key] = (value, size)
                self._num_bytes += size
                while self._num_bytes > self._max_bytes:
                    self._num_bytes -= self._kept.popitem(last=False)[1][1]
        return value


def groups_bytes(groups: Iterable[GroupRecord]) -> int:
    """About what groups without tokens take in memory."""
    return sum(
        2_000 + sum(2 * len(turn.text) for turn in group.prompt or ()) + responses_bytes(group.responses)
        for group in groups
    )


def responses_bytes(responses: Iterable[ResponseRecord]) -> int:
    """As `groups_bytes`; an object of Python's with its fields is a few hundred bytes, a letter at most four."""
    return sum(1_000 + 2 * len(each.text or "") + 600 * len(each.parts) for each in responses)
