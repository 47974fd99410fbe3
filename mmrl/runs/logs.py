"""The logs of a run, read from their ends in bounded pieces: they may be far larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Literal, Protocol

PIECE_BYTES = 1 << 16
SEARCH_BYTES = 1 << 26
"""Most that one search reads before it gives what it has."""
_BLOCK_BYTES = 1 << 20
_LONGEST_MATCH = 1000


class LogSource(Protocol):
    """Where a log is read from: a path, or what a store has of it."""

    def open(self, mode: Literal["rb"]) -> BufferedReader: ...


@dataclass(frozen=True)
class LogFile:
    """name: below the attempt's folder of logs, such as `stderr.log`."""

    attempt: int
    name: str
    source: LogSource
    num_bytes: int


@dataclass(frozen=True)
class LogPiece:
    """Bytes start to end (excluded) of a file of num_bytes, as text. Begins and ends with a line where one is short
    enough; what is no UTF-8 is replaced."""

    text: str
    start: int
    end: int
    num_bytes: int


@dataclass(frozen=True)
class LogMatch:
    """offset: where the line begins, in bytes. A long line is cut."""

    offset: int
    line: str


@dataclass(frozen=True)
class LogSearch:
    """matches: the last one first. searched_from: nothing before this byte was looked at; 0 once all was."""

    matches: tuple[LogMatch, ...]
    searched_from: int


def read_before(source: LogSource, end: int | None = None, *, max_bytes: int = PIECE_BYTES) -> LogPiece:
    """The piece that ends at byte `end`, the file's own end if none is given. Raises OSError."""
    with source.open("rb") as file:
        size = file.seek(0, 2)
        end = size if end is None else min(end, size)
        start = max(0, end - max_bytes)
        file.seek(start)
        data = file.read(end - start)
    first = _first_line(data) if start else 0
    return LogPiece(data[first:].decode("utf-8", "replace"), start + first, end, size)


def read_after(source: LogSource, start: int, *, max_bytes: int = PIECE_BYTES) -> LogPiece:
    """The piece that begins at byte `start`, up to a line's end where there is one. Raises OSError."""
    with source.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(min(start, size))
        data = file.read(max_bytes)
    start = min(start, size)
    if start + len(data) < size and b"\n" in data:
        data = data[: data.rfind(b"\n") + 1]
    return LogPiece(data.decode("utf-8", "replace"), start, start + len(data), size)


def start_of_last_lines(source: LogSource, count: int) -> int:
    """The byte at which the last `count` lines begin. Raises OSError."""
    num_left = count
    with source.open("rb") as file:
        size = end = file.seek(0, 2)
        if count <= 0:
            return size
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            block = file.read(end - start)
            place = len(block) - 1 if end == size and block.endswith(b"\n") else len(block)
            while num_left > 0 and (place := block.rfind(b"\n", 0, place)) >= 0:
                num_left -= 1
            if num_left == 0:
                return start + place + 1
            end = start
    return 0


def search_before(
    source: LogSource, text: str, end: int | None = None, *, max_matches: int = 100, max_bytes: int = SEARCH_BYTES
) -> LogSearch:
    """Lines that hold the text, whatever the case of plain letters, from `end` backwards. Raises OSError."""
    wanted = text.encode().lower()
    with source.open("rb") as file:
        place = file.seek(0, 2)
    place = place if end is None else min(end, place)
    lowest = max(0, place - max_bytes)
    matches: list[LogMatch] = []
    while place > lowest and wanted:
        piece = _raw_before(source, place, max_bytes=_BLOCK_BYTES)
        if wanted in piece[1].lower():
            for offset, line in _lines_backwards(piece):
                if wanted in line.lower():
                    matches.append(LogMatch(offset, line[:_LONGEST_MATCH].decode("utf-8", "replace")))
                    if len(matches) == max_matches:
                        return LogSearch(tuple(matches), offset)
        place = piece[0]
    return LogSearch(tuple(matches), place if wanted else 0)


def _raw_before(source: LogSource, end: int, *, max_bytes: int) -> tuple[int, bytes]:
    with source.open("rb") as file:
        start = max(0, end - max_bytes)
        file.seek(start)
        data = file.read(end - start)
    first = _first_line(data) if start else 0
    return start + first, data[first:]


def _first_line(data: bytes) -> int:
    """Where the first whole line begins; 0 where the piece is within one long line."""
    place = data.find(b"\n")
    return place + 1 if 0 <= place < len(data) - 1 else 0


def _lines_backwards(piece: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
    place = piece[0] + len(piece[1])
    for line in reversed(piece[1].splitlines(keepends=True)):
        place -= len(line)
        yield place, line.rstrip(b"\r\n")
