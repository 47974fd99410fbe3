"""Reads a growing file of JSON lines from where it was left: whole lines only, each once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Lines:
    """rows: the objects of the whole lines that were read. offset: bytes of the file up to the end of the last one.

    num_bad: lines that are no JSON objects; they are passed over. rest_bytes: what the file holds beyond `offset`.
    """

    rows: tuple[dict[str, Any], ...]
    offset: int
    num_bad: int
    rest_bytes: int


def read_lines(path: Path, offset: int, *, max_bytes: int) -> Lines:
    """At most `max_bytes` from `offset` on, but at least one line. A line that still grows is left for the next time.

    A file that is shorter than `offset` was cut by its writer, who took back a line that did not fit: what is lost was
    never a whole line, and reading goes on from its end. A missing file is an empty one.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size <= offset:
                return Lines((), min(offset, size), 0, 0)
            file.seek(offset)
            data = file.read(max_bytes)
            while b"\n" not in data and (more := file.read(max_bytes)):
                data += more
    except FileNotFoundError:
        return Lines((), 0, 0, 0)
    end = data.rfind(b"\n") + 1
    rows, num_bad = [], 0
    for line in data[:end].split(b"\n"):
        if not line.strip():
            continue
        row = _parse(line)
        if row is None:
            num_bad += 1
        else:
            rows.append(row)
    return Lines(tuple(rows), offset + end, num_bad, size - offset - end)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
