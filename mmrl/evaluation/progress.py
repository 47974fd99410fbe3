"""How far an evaluation is: what it says while it goes on, and how that is read from its events."""

from __future__ import annotations

import re
from collections.abc import Callable

_NUM_TOLD = 20
_SAID = re.compile(r"answered (\d+) of (\d+) prompts")


class AnswerCount:
    """Counts the prompts that were answered and says so, some twenty times in all."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._say = total, say
        self._every = max(1, total // _NUM_TOLD)
        self.num = 0

    def add(self) -> None:
        self.num += 1
        if self.num % self._every == 0 or self.num == self._total:
            self._say(f"answered {self.num} of {self._total} prompts")


def read_answered(message: str) -> tuple[int, int] | None:
    """Prompts answered, and all of them, from what `AnswerCount` says; None for any other text."""
    match = _SAID.fullmatch(message)
    return (int(match[1]), int(match[2])) if match else None
