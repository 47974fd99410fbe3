"""The lines of a text file by their physical numbers, none longer than memory allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MAX_LINE_BYTES = 64 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """(number, line) from 1; None in place of a line longer than MAX_LINE_BYTES. A byte-order mark is left out."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if len(line) > MAX_LINE_BYTES:
                _skip_line(file, line)
                yield number, None
            else:
                yield number, line


def _skip_line(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)
