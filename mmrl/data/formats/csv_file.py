"""CSV with a header line, UTF-8. Every value is text and an empty one is absent; a row is the line it begins on."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError


def read(path: Path) -> Iterator[RawRow | RowError]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
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


def _check_header(path: Path, header: list[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if not header or twice:
        trouble = f"names column {twice[0]!r} twice" if twice else "is missing"
        raise DataError(f"{path}:1: the header {trouble}; the first line names each column once")


def _row(path: Path, number: int, header: list[str], record: list[str]) -> RawRow | RowError:
    if len(record) != len(header):
        return RowError(path.name, number, "", f"has {len(record)} values, the header names {len(header)} columns")
    return RawRow(number, {name: text or None for name, text in zip(header, record, strict=True)})
