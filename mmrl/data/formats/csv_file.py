"""CSV or TSV with a header line, UTF-8. Every value is text and an empty one is absent; a row is the line it begins on.

The values are parted by what the header is parted by: comma, tab or semicolon. In the columns that hold lists
(LIST_COLUMNS), a value that is a JSON list is read as one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.data.formats.lines import MAX_LINE_BYTES
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError

LIST_COLUMNS = ("images", "messages", "conversations", "chosen", "rejected", "history")


def read(path: Path) -> Iterator[RawRow | RowError]:
    csv.field_size_limit(MAX_LINE_BYTES)  # the module's own limit is less than one image as base64
    with path.open(encoding="utf-8-sig", newline="") as lines:
        delimiter = _delimiter(path)
        reader = csv.reader(lines, strict=True, delimiter=delimiter)
        try:
            header = next(reader, [])
            _check_header(path, header)
            begins = reader.line_num + 1
            for record in reader:
                if record:
                    yield _row(path, begins, header, record)
                begins = reader.line_num + 1
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: not UTF-8 text near line {reader.line_num + 1}; save the file as UTF-8"
            ) from error
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num}: not valid CSV: {error}") from error


def _delimiter(path: Path) -> str:
    with path.open("rb") as file:
        header = file.readline(1 << 16).decode("utf-8", errors="replace")
    if path.suffix.lower() == ".tsv" or ("\t" in header and "," not in header):
        return "\t"
    return ";" if ";" in header and "," not in header else ","


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
