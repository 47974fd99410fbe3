"""JSON Lines: one object a line. A byte-order mark, CRLF and blank lines are accepted; rows are physical lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from mmrl.data.formats.lines import MAX_LINE_BYTES, read_lines, refuse_utf_16
from mmrl.data.rows import RawRow, RowError, RowProblem, describe, parse_float
from mmrl.errors import DataError


def read(path: Path) -> Iterator[RawRow | RowError]:
    _refuse_one_value(path)
    for number, line in read_lines(path):
        if line is not None and not line.strip():
            continue
        try:
            yield RawRow(number, _parse(line), path.name)
        except RowProblem as problem:
            yield RowError(path.name, number, problem.field, problem.message)


def _refuse_one_value(path: Path) -> None:
    """Raises DataError for one JSON list of objects, or one object over several lines: each line would be an error."""
    refuse_utf_16(path)
    lines = [line.strip() for _, line in islice(read_lines(path), 3) if line is not None]
    first = next((line for line in lines if line), b"")
    if first in (b"[", b"{") or first.removeprefix(b"[").lstrip()[:1] == b"{" != first[:1]:
        raise DataError(
            f"{path}: one JSON list or object, and {path.suffix or 'JSON Lines'} has one object a line; "
            "name the file .json, or write one object a line"
        )


def _parse(line: bytes | None) -> dict[str, Any]:
    if line is None:
        raise RowProblem("", f"is longer than {MAX_LINE_BYTES >> 20} MiB; put its images into files beside the data")
    try:
        values = json.loads(line.decode("utf-8"), parse_float=parse_float)
    except UnicodeDecodeError as error:
        raise RowProblem("", f"not UTF-8 text (byte {error.start} of the line); save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowProblem("", f"not valid JSON: {error.msg} at column {error.colno}; each line is one object") from error
    except (ValueError, RecursionError) as error:
        raise RowProblem("", f"JSON that cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise RowProblem("", f"each line is one JSON object; got {describe(values)}")
    return values
