"""JSON Lines: one object a line. A byte-order mark, CRLF and blank lines are accepted; rows are physical lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.data.formats.lines import MAX_LINE_BYTES, read_lines
from mmrl.data.rows import RawRow, RowError, RowProblem, describe


def read(path: Path) -> Iterator[RawRow | RowError]:
    for number, line in read_lines(path):
        if line is not None and not line.strip():
            continue
        try:
            yield RawRow(number, _parse(line), path.name)
        except RowProblem as problem:
            yield RowError(path.name, number, problem.field, problem.message)


def _parse(line: bytes | None) -> dict[str, Any]:
    if line is None:
        raise RowProblem("", f"is longer than {MAX_LINE_BYTES >> 20} MiB; put its images into files beside the data")
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
