"""JSON Lines: one object a line. A byte-order mark, CRLF and blank lines are accepted; rows are physical lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.data.rows import RawRow, RowError, RowProblem, describe

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read(path: Path) -> Iterator[RawRow | RowError]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if not line.strip():
                continue
            try:
                yield RawRow(number, _parse(line))
            except RowProblem as problem:
                yield RowError(path.name, number, problem.field, problem.message)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RowProblem("", f"not UTF-8 text (byte {error.start} of the line); save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowProblem("", f"not valid JSON: {error.msg} at column {error.colno}; each line is one object") from error
    except (ValueError, RecursionError) as error:
        raise RowProblem("", f"JSON that cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise RowProblem("", f"each line is one JSON object; got {describe(values)}")
    return values
