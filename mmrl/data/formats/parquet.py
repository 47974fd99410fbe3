"""Parquet, read a few rows at a time so that memory does not grow with the file. Rows are counted from 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError

ROWS_AT_ONCE = 64


def read(path: Path) -> Iterator[RawRow | RowError]:
    try:
        with pq.ParquetFile(path) as table:
            number = 0
            for batch in table.iter_batches(batch_size=ROWS_AT_ONCE):
                for values in batch.to_pylist():
                    number += 1
                    yield RawRow(number, values)
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file that can be read: {str(error).splitlines()[0]}") from error
