"""A JSON file: one list of objects. Rows are counted from 1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.data.rows import RawRow, RowError, describe
from mmrl.errors import DataError


def read(path: Path) -> Iterator[RawRow | RowError]:
    for number, values in enumerate(_parse(path), start=1):
        if isinstance(values, dict):
            yield RawRow(number, values)
        else:
            yield RowError(path.name, number, "", f"each row is one JSON object; got {describe(values)}")


def _parse(path: Path) -> list[Any]:
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg} at column {error.colno}; "
            "a file of one object a line must be named .jsonl"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: JSON that cannot be read: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{path}: a JSON data set is one list of objects; got {describe(rows)}")
    return rows
