"""Stop strings: a response ends with the token that completes one of them in its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_SPARE_TOKENS = 8
"""Looked at besides those that a stop string can stretch over: some tokens add no text of their own."""


class StopStrings:
    """Finds the token that completes a stop string.

    decode: ids -> text without special tokens.
    A token that adds text adds a byte or more, so a stop string lies within as many last tokens as it has bytes. Only
    those are decoded at every token, and the whole response once they hold one.
    """

    def __init__(self, stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        self._stop = tuple(stop)
        self._decode = decode
        self.num_last_tokens = max((len(text.encode()) for text in self._stop), default=0) + _SPARE_TOKENS

    def __bool__(self) -> bool:
        return bool(self._stop)

    def within(self, token_ids: Sequence[int]) -> bool:
        """Whether the text of these ids holds a stop string."""
        text = self._decode(token_ids)
        return any(stop in text for stop in self._stop)
