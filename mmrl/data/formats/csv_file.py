"""CSV or TSV with a header line, UTF-8, or UTF-16 with a byte-order mark.

Every value is text and an empty one is absent; a row is the line it begins on. The values are parted by what the header
is parted by: comma, tab or semicolon; a first line `sep=;`, as Excel writes it, says it too. In the columns that hold
lists (LIST_COLUMNS), a value that is a JSON list is read as one.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.data.formats.lines import MAX_LINE_BYTES
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError

LIST_COLUMNS = ("images", "messages", "conversations", "chosen", "rejected", "history")

_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?\r?\n?', re.IGNORECASE)


def read(path: Path) -> Iterator[RawRow | RowError]:
    csv.field_size_limit(MAX_LINE_BYTES)  # the module's own limit is less than one image as base64
    encoding = _encoding(path)
    begins = 1
    with path.open(encoding=encoding, newline="") as lines:
        try:
            delimiter, num_skipped = _delimiter(path, encoding)
            for _ in range(num_skipped):
                lines.readline()
            reader = csv.reader(lines, strict=True, delimiter=delimiter)
            header = next(reader, [])
            _check_header(path, header)
            begins = reader.line_num + num_skipped + 1
            for record in reader:
                if record:
                    yield _row(path, begins, header, record)
                begins = reader.line_num + num_skipped + 1
        except UnicodeError as error:
            name = "UTF-8" if encoding == "utf-8-sig" else "UTF-16"
            raise DataError(f"{path}: not {name} text near line {begins}; save the file as UTF-8") from error
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num + num_skipped}: not valid CSV: {error}") from error


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def _delimiter(path: Path, encoding: str) -> tuple[str, int]:
    """What parts the values, and how many lines (0 or 1) only say so and come before the header."""
    with path.open(encoding=encoding, errors="replace") as file:
        header = file.readline(1 << 16)
    said = _SEPARATOR_LINE.fullmatch(header)
    if said:
        return said[1], 1
    if path.suffix.lower() == ".tsv" or ("\t" in header and "," not in header):
        return "\t", 0
    return (";" if ";" in header and "," not in header else ","), 0


def _check_header(path: Path, header: list[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if not header or twice:
        trouble = f"names column {twice[0]!r} twice" if twice else "is missing"
        raise DataError(f"{path}:1: the header {trouble}; the first line names each column once")


def _row(path: Path, number: int, header: list[str], record: list[str]) -> RawRow | RowError:
    if len(record) != len(header):
        return RowError(path.name, number, "", f"has {len(record)} values, the header names {len(header)} columns")
    values = {name: _value(name, text) for name, text in zip(header, record, strict=True)}
    return RawRow(number, values, path.name)


def _value(column: str, text: str) -> Any:
    if column in LIST_COLUMNS and text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text or None
