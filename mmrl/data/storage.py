"""How a registered split lies on disk: a Parquet file of validated samples, written and read in batches.

Columns: id, messages and meta as JSON text, answer, and the SHA-256 of each image (for queries; messages hold it too).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from mmrl.data.files import explain_write_errors
from mmrl.data.serialise import canonical, messages_to_json, sample_from_dict
from mmrl.errors import DataError
from mmrl.types import Sample

ROWS_PER_GROUP = 1000
CHARACTERS_PER_GROUP = 64 * 2**20

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("messages", pa.string(), nullable=False),
        pa.field("answer", pa.string()),
        pa.field("meta", pa.string(), nullable=False),
        pa.field("images", pa.list_(pa.string()), nullable=False),
    ]
)


class SplitInfo(BaseModel):
    """sha256: of the split's samples in order, whatever the file that holds them. num_bytes: of that file."""

    model_config = ConfigDict(frozen=True)

    num_rows: int
    num_images: int
    num_bytes: int
    sha256: str


def write_split(path: Path, samples: Iterable[Sample]) -> SplitInfo:
    """Writes the samples in order. What raises in `samples` passes through; the half-written file stays behind."""
    digest = hashlib.sha256()
    num_rows = num_images = 0
    with explain_write_errors(path):
        writer = pq.ParquetWriter(path, _SCHEMA, compression="zstd")
    try:
        for rows in _groups(map(_row, samples)):
            for row in rows:
                digest.update(row.identity())
            num_rows += len(rows)
            num_images += sum(len(row.images) for row in rows)
            with explain_write_errors(path):
                writer.write_batch(_record_batch(rows))
    finally:
        with explain_write_errors(path):
            writer.close()
    return SplitInfo(num_rows=num_rows, num_images=num_images, num_bytes=path.stat().st_size, sha256=digest.hexdigest())


def read_split(path: Path, *, start: int = 0, stop: int | None = None) -> Iterator[Sample]:
    """The samples of rows start (from 0) up to but without stop, in order; row groups outside are not read."""
    try:
        with pq.ParquetFile(path) as table:
            begins = 0
            for group in range(table.num_row_groups):
                ends = begins + table.metadata.row_group(group).num_rows
                if ends > start and (stop is None or begins < stop):
                    rows = table.read_row_group(group).to_pylist()
                    yield from map(_sample, rows[max(start - begins, 0) : None if stop is None else stop - begins])
                begins = ends
    except (pa.ArrowException, KeyError, OSError) as error:
        raise DataError(f"{path} is damaged or missing ({error}); add the data set again") from error


class _Row(NamedTuple):
    """A row of the file; images: their SHA-256."""

    id: str
    messages: str
    answer: str | None
    meta: str
    images: list[str]

    def identity(self) -> bytes:
        """All that the row holds, as bytes that no other row has: JSON text has no line break of its own."""
        return "\n".join((self.id, self.messages, canonical(self.answer), self.meta, "")).encode("utf-8")


def _row(sample: Sample) -> _Row:
    try:
        meta = canonical(dict(sample.meta))
    except (TypeError, ValueError) as error:
        raise DataError(f"sample {sample.id}: its meta may hold JSON values only, and no NaN: {error}") from error
    messages = canonical(messages_to_json(sample.messages))
    return _Row(sample.id, messages, sample.answer, meta, [image.sha256 for image in sample.images])


def _groups(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Row groups, bounded in rows and in characters."""
    group, num_characters = list[_Row](), 0
    for row in rows:
        group.append(row)
        num_characters += len(row.messages) + len(row.meta) + len(row.answer or "")
        if len(group) == ROWS_PER_GROUP or num_characters >= CHARACTERS_PER_GROUP:
            yield group
            group, num_characters = [], 0
    if group:
        yield group


def _record_batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    """Columns from their bytes: pyarrow's conversion of Python lists would import pandas, for half a second."""
    images = _text_column([sha256 for row in rows for sha256 in row.images])
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row.images) for row in rows], out=offsets[1:])
    lists = pa.Array.from_buffers(pa.list_(pa.string()), len(rows), [None, pa.py_buffer(offsets)], children=[images])
    texts: list[list[str | None]] = [[row.id, row.messages, row.answer, row.meta] for row in rows]
    columns = [_text_column(column) for column in zip(*texts, strict=True)]
    return pa.RecordBatch.from_arrays([*columns, lists], schema=_SCHEMA)


def _text_column(texts: Sequence[str | None]) -> pa.Array:
    encoded = [b"" if text is None else text.encode("utf-8") for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    is_there = np.packbits(np.array([text is not None for text in texts], bool), bitorder="little")
    validity = pa.py_buffer(is_there) if None in texts else None
    return pa.Array.from_buffers(
        pa.string(), len(texts), [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


def _sample(row: dict[str, Any]) -> Sample:
    return sample_from_dict(row | {"messages": json.loads(row["messages"]), "meta": json.loads(row["meta"])})
