"""What a page shows, as a file to take along: CSV, parquet, JSONL, or one HTML page that needs no network.

A page describes its records once, as an `Export`; nothing is read before somebody asks for a file. What was left out of
a file for its size is said, on the page and in the report.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["csv", "parquet", "jsonl", "html"]
KINDS: Mapping[Kind, str] = {"html": "Report", "csv": "CSV", "parquet": "Parquet", "jsonl": "JSONL"}
MIME: Mapping[Kind, str] = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    "html": "text/html",
}
MAX_ROWS: Mapping[Kind, int] = {"csv": 100_000, "parquet": 100_000, "jsonl": 100_000, "html": 1_000}
MAX_BYTES = 64 * 1024 * 1024
"""Of the texts of a file, before they are compressed; a report has a quarter of it, and its images besides."""


@dataclass(frozen=True)
class Record:
    """A row. values: column to a number, text, truth, None for what is not there, or lists and mappings of these.

    section: in the report, records in a row with the same section stand under that heading, with the images of the
    first of them. images: files on this machine; one that is gone is said to be.
    """

    values: Mapping[str, Any]
    section: str = ""
    images: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Export:
    """name: of the file, without its ending. about: what a reader needs to know of where this comes from, by its name.

    records: called when a file is made, and read once. total: how many there are, if all are taken.
    shared: columns that are alike in a section, such as the prompt; the report tells them once.
    content: what changes whenever records do that may change while their number stays, such as a hash of them.
    """

    name: str
    title: str
    records: Callable[[], Iterable[Record]]
    total: int
    about: Mapping[str, str] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    content: str = ""

    @property
    def stamp(self) -> str:
        """Tells what is exported from what a page showed before."""
        text = json.dumps([self.name, self.title, self.total, dict(self.about), self.content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Exported:
    """data: the file. told: how many rows it has, and what was left out."""

    file_name: str
    mime: str
    data: bytes
    num_rows: int
    told: str


def make(export: Export, kind: Kind) -> Exported:
    """Raises what reading the records raises."""
    from console.services import export_report, export_tables

    rows = Bounded(export.records(), max_rows=MAX_ROWS[kind], max_bytes=MAX_BYTES // (4 if kind == "html" else 1))
    left_out: list[str] = []
    if kind == "html":
        data, left_out = export_report.report(export, rows)
    else:
        data = export_tables.WRITERS[kind](list(rows))
    told = "; ".join([_told(rows, export.total), *left_out])
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", export.name).strip("-.")[:100] or "export"
    return Exported(f"{name}.{kind}", MIME[kind], data, rows.num_rows, told)


class Bounded:
    """Records as long as there are not too many of them, or too much text in them."""

    def __init__(self, records: Iterable[Record], *, max_rows: int, max_bytes: int) -> None:
        self._records, self._max_rows, self._max_bytes = records, max_rows, max_bytes
        self.num_rows = self._num_bytes = 0
        self.is_cut = False

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            size = sum(map(_size, record.values.values()))
            if self.num_rows >= self._max_rows or (self.num_rows and self._num_bytes + size > self._max_bytes):
                self.is_cut = True
                return
            self.num_rows += 1
            self._num_bytes += size
            yield record


def plain_text(value: Any) -> str:
    """A text that UTF-8 can hold: a lone surrogate as its escape."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def nested_text(value: Any) -> str:
    """Lists and mappings as JSON, for forms that have no place for them."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _told(rows: Bounded, total: int) -> str:
    if rows.is_cut:
        return f"the first {rows.num_rows:,} of {max(total, rows.num_rows + 1):,} rows; more would make it too large"
    return "1 row" if rows.num_rows == 1 else f"all {rows.num_rows:,} rows"


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return 8 if value is None or isinstance(value, bool | int | float) else len(nested_text(value))
