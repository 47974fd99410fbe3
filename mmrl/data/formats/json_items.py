"""JSON read piece by piece: the items of lists and the fields of an object, one in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from mmrl.data.rows import parse_float
from mmrl.errors import DataError

CHUNK_CHARACTERS = 1 << 20
MAX_ITEM_CHARACTERS = 64 << 20

_SPACES = " \t\r\n"
_CLOSED_BY_ITSELF = '}]"'


class JsonItems:
    """A position in JSON text. Every method starts where the last one ended, at white space or a token.

    Raises DataError with file and line for text that is no JSON, and for one item beyond MAX_ITEM_CHARACTERS.
    """

    def __init__(self, path: Path, text: TextIO) -> None:
        self._path = path
        self._text = text
        self._buffer = ""
        self._at = 0
        self._lines_before = 0
        self._columns_before = 0
        self._decoder = json.JSONDecoder(parse_float=parse_float)

    def peek(self) -> str:
        """The next character that is no white space; empty at the end of the file."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in _SPACES:
                    return self._buffer[self._at]
                self._at += 1
            if not self._read_on(CHUNK_CHARACTERS):
                return ""

    def fields(self) -> Iterator[str]:
        """The keys of the object that begins here; after each the caller reads its value."""
        self._take("{")
        while self.peek() != "}":
            key = self.value()
            if not isinstance(key, str):
                raise self._fault("an object's key must be text")
            self._take(":")
            yield key
            if self.peek() != "}":
                self._take(",")
                if self.peek() == "}":
                    raise self._fault("a comma before }")
        self._take("}")

    def items(self) -> Iterator[Any]:
        """The items of the list that begins here."""
        self._take("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self._take(",")
                if self.peek() == "]":
                    raise self._fault("a comma before ]")
        self._take("]")

    def value(self) -> Any:
        """The value that begins here, whole."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                offset = error.pos - self._at
                if self._read_on(max(CHUNK_CHARACTERS, len(self._buffer) - self._at)):
                    continue
                raise self._fault(error.msg, self._at + offset) from error
            except (ValueError, RecursionError) as error:
                raise DataError(f"{self._path}: JSON that cannot be read: {error}") from error
            # A number may go on in what is still unread: `12` of `12`, `12.` or `12e-`, and `5` after it.
            is_complete = self._buffer[end - 1] in _CLOSED_BY_ITSELF or len(self._buffer) - end > 2
            length = end - self._at
            if is_complete or not self._read_on(CHUNK_CHARACTERS):
                self._at += length
                return value

    def end(self) -> None:
        if self.peek():
            raise self._fault("more text after the end of the data")

    def _take(self, character: str) -> None:
        if self.peek() != character:
            raise self._fault(f"expecting {character!r}")
        self._at += 1

    def _read_on(self, num_characters: int) -> bool:
        """Reads further text behind what is unread; False at the end of the file."""
        unread = len(self._buffer) - self._at
        if unread > MAX_ITEM_CHARACTERS:
            raise DataError(
                f"{self._path}:{self._line_at(self._at)}: an item of more than {MAX_ITEM_CHARACTERS:,} characters; "
                "put its images into files beside the data"
            )
        try:
            more = self._text.read(num_characters)
        except UnicodeDecodeError as error:
            raise DataError(f"{self._path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
        self._columns_before = self._column_at(self._at) - 1
        self._lines_before += self._buffer.count("\n", 0, self._at)
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        return bool(more)

    def _line_at(self, position: int) -> int:
        return self._lines_before + self._buffer.count("\n", 0, position) + 1

    def _column_at(self, position: int) -> int:
        line_start = self._buffer.rfind("\n", 0, position)
        return position - line_start if line_start >= 0 else self._columns_before + position + 1

    def _fault(self, problem: str, position: int | None = None) -> DataError:
        position = self._at if position is None else position
        place = f"{self._path}:{self._line_at(position)}"
        return DataError(f"{place}: not valid JSON: {problem} at column {self._column_at(position)}")
