"""A JSON file: a list of objects, an object that holds one list of them, COCO annotations, or JSON Lines.

Read piece by piece, so memory does not grow with the file. Rows are counted from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.data.formats import coco, jsonl
from mmrl.data.formats.json_items import JsonItems
from mmrl.data.formats.lines import read_lines, refuse_utf_16
from mmrl.data.rows import RawRow, RowError, describe
from mmrl.errors import DataError


def read(path: Path) -> Iterator[RawRow | RowError]:
    refuse_utf_16(path)
    if _is_json_lines(path):
        yield from jsonl.read(path)
        return
    with path.open(encoding="utf-8-sig", newline="") as text:
        items = JsonItems(path, text)
        if items.peek() == "[":
            yield from _rows(path, items.items())
        elif items.peek() == "{":
            yield from _rows_of_object(path, items)
        else:
            raise DataError(f"{path}: a JSON data set is one list of objects; got {describe(items.value())}")
        items.end()


def _is_json_lines(path: Path) -> bool:
    """Whether the first line that is not blank is an object by itself and another object follows it."""
    lines = (line for _, line in read_lines(path) if line is None or line.strip())
    first, second = next(lines, None), next(lines, None)
    if not (first and second and first.lstrip().startswith(b"{") and second.lstrip().startswith(b"{")):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _rows(path: Path, items: Iterator[Any]) -> Iterator[RawRow | RowError]:
    for number, values in enumerate(items, start=1):
        if isinstance(values, dict):
            yield RawRow(number, values, path.name)
        else:
            yield RowError(path.name, number, "", f"each row is one JSON object; got {describe(values)}")


def _rows_of_object(path: Path, items: JsonItems) -> Iterator[RawRow | RowError]:
    """The rows of the one list of objects in it; of several lists, those of COCO are understood."""
    lists: list[str] = []
    fields = items.fields()
    for key in fields:
        if items.peek() != "[":
            items.value()
            continue
        if key in coco.LISTS:
            yield from coco.read(path, items, fields, key)
            return
        lists.append(key)
        if len(lists) > 1:
            raise DataError(
                f"{path}: an object with the lists {' and '.join(lists)}; a JSON data set is one list of objects: "
                "write the rows into a file of their own for each split"
            )
        yield from _rows(path, items.items())
    if not lists:
        raise DataError(
            f"{path}: a JSON data set is one list of objects, or an object that holds one; got an object without a list"
        )
