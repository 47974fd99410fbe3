"""How a registered split lies on disk: a Parquet file of validated samples, written and read in batches.

Columns: id, messages and meta as JSON text, answer, and the SHA-256 of each image (for queries; messages hold it too).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from mmrl.data.files import explain_write_errors
from mmrl.data.serialise import canonical, sample_from_dict, sample_to_dict
from mmrl.errors import DataError
from mmrl.types import Sample

ROWS_PER_GROUP = 1000

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
    remaining = iter(samples)
    with explain_write_errors(path):
        writer = pq.ParquetWriter(path, _SCHEMA, compression="zstd")
    try:
        while group := list(islice(remaining, ROWS_PER_GROUP)):
            columns = [_columns(sample) for sample in group]
            for row in columns:
                digest.update(canonical(row).encode("utf-8") + b"\n")
            num_rows += len(group)
            num_images += sum(len(row["images"]) for row in columns)
            with explain_write_errors(path):
                writer.write_table(pa.Table.from_pylist(columns, schema=_SCHEMA))
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


def _columns(sample: Sample) -> dict[str, Any]:
    values = sample_to_dict(sample)
    try:
        meta = canonical(values["meta"])
    except (TypeError, ValueError) as error:
        raise DataError(f"sample {sample.id}: its meta may hold JSON values only, and no NaN: {error}") from error
    return {
        "id": sample.id,
        "messages": canonical(values["messages"]),
        "answer": sample.answer,
        "meta": meta,
        "images": [image.sha256 for image in sample.images],
    }


def _sample(row: dict[str, Any]) -> Sample:
    return sample_from_dict(row | {"messages": json.loads(row["messages"]), "meta": json.loads(row["meta"])})
