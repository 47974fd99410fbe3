"""Parquet, read a few rows at a time so that memory does not grow with the file or its row groups. Counted from 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from mmrl.data.formats.arrow_rows import rows_at_once, rows_of
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError

READ_BYTES = 1 << 20
ROWS_A_PAGE = 1024
"""What writers put into one page, which is read whole, before they first look at its size."""


def read(path: Path) -> Iterator[RawRow | RowError]:
    try:
        # With a buffer size, column chunks are read page by page: a row group of several GB never lies in memory whole.
        with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False) as table:
            _check_memory(path, table)
            yield from rows_of(_batches(table), table.schema_arrow, path.name)
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file that can be read: {str(error).splitlines()[0]}") from error


def _check_memory(path: Path, table: pq.ParquetFile) -> None:
    """Raises DataError where one page of rows would not fit into memory, before it is tried."""
    available = psutil.virtual_memory().available
    for index in range(table.num_row_groups):
        group = table.metadata.row_group(index)
        row_bytes = group.total_byte_size / max(group.num_rows, 1)
        needed = 2 * row_bytes * min(group.num_rows, ROWS_A_PAGE)
        if needed > available:
            raise DataError(
                f"{path}: row group {index} holds {group.num_rows} rows of {row_bytes / 2**20:.1f} MiB, and reading "
                f"some of them takes {needed / 2**30:.1f} GiB of the {available / 2**30:.1f} GiB that are free; write "
                "the file again with small row groups, such as pyarrow's write_table(…, row_group_size=64)"
            )


def _batches(table: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    for index in range(table.num_row_groups):
        group = table.metadata.row_group(index)
        size = rows_at_once(group.num_rows, group.total_byte_size)
        yield from table.iter_batches(batch_size=size, row_groups=[index], use_threads=False)
