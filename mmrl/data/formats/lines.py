"""The lines of a text file by their physical numbers, none longer than memory allows."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mmrl.errors import DataError

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


def refuse_utf_16(path: Path) -> None:
    """Raises DataError for text that begins with the byte-order mark of UTF-16."""
    with path.open("rb") as file:
        head = file.read(4)
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and 0 in head[2:]:
            raise DataError(
                f"{path}: UTF-16 text by its byte-order mark, and JSON is read as UTF-8; save the file as UTF-8"
            )


def _skip_line(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)
