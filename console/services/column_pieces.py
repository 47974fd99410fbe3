"""Columns of the samples of some steps, in pieces that are bounded in bytes and part no group.

A response may have a megabyte: rows alone bound nothing. How many rows are decoded at once follows from what the file
says of its row groups, and where a piece ends from what was decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from console.services.group_candidates import TEXTS

PIECE_BYTES = 32_000_000
"""Of a piece as decoded, about; a group that is larger is one piece."""
BLOCK_ROWS = 16_384
BLOCK_BYTES = 256_000_000
"""Of steps that are looked through together, as the file has them before it is compressed."""
_MOST_ROWS_AT_ONCE = 2048
_ENCODED = 2_000_000
"""A row group with so little text, in bytes, has equal texts once, and is held like that: a run that has collapsed may
repeat one by the thousand. Larger ones have them one by one."""


def steps_at_once(path: Path, kept: Collection[int], columns: Sequence[str]) -> int:
    """Of a file of many steps, so many that they have about BLOCK_ROWS rows and no more than about BLOCK_BYTES in these
    columns. kept: the steps that the run has samples of, which need not follow each other."""
    with pq.ParquetFile(path) as file:
        place = file.schema.names.index("step")
        numbers = range(file.num_row_groups)
        found = [file.metadata.row_group(number).column(place).statistics for number in numbers]
        if any(each is None or not each.has_min_max for each in found):
            return 1
        low, high = min(each.min for each in found), max(each.max for each in found)
        num_steps = sum(low <= step <= high for step in kept)
        num_bytes = sum(_sizes(file.metadata.row_group(number), columns).total() for number in numbers)
        by_rows = BLOCK_ROWS * num_steps // max(1, file.metadata.num_rows)
        return max(1, min(by_rows, BLOCK_BYTES * num_steps // max(1, num_bytes)))


def pieces(path: Path, steps: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows from the first of these steps to the last, in the file's order; of row groups without them nothing is
    read. A column that the file lacks is left out."""
    held: list[pa.RecordBatch] = []
    for batch in _batches(path, min(steps), max(steps), columns):
        held.append(batch)
        if sum(each.nbytes for each in held) >= PIECE_BYTES:
            table = pa.Table.from_batches(held)
            begin = _last_group(table)
            if begin:
                yield table.slice(0, begin)
                held = table.slice(begin).to_batches()
    if held:
        yield pa.Table.from_batches(held)


def _batches(path: Path, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        metadata, there = file.metadata, [name for name in columns if name in file.schema_arrow.names]
        numbers = [number for number in range(file.num_row_groups) if _may_hold(file, number, low, high)]
    sizes = [_sizes(metadata.row_group(number), there) for number in numbers]
    encoded = [name for name in TEXTS if all(size.get(name, 0) <= _ENCODED for size in sizes)]
    num_rows = min(
        (
            PIECE_BYTES * metadata.row_group(number).num_rows // max(1, sum(size.values()))
            for number, size in zip(numbers, sizes, strict=True)
        ),
        default=1,
    )
    num_rows = max(1, min(_MOST_ROWS_AT_ONCE, num_rows))
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=encoded) as file:
        for batch in file.iter_batches(num_rows, row_groups=numbers, columns=there, use_threads=False):
            step = batch.column("step")
            is_asked = pc.and_(pc.greater_equal(step, low), pc.less_equal(step, high))
            yield batch if pc.all(is_asked).as_py() else batch.filter(is_asked)


def _sizes(group: Any, columns: Sequence[str]) -> Counter[str]:
    """Bytes of a row group's columns, encoded but not compressed."""
    found: Counter[str] = Counter()
    for place in range(group.num_columns):
        chunk = group.column(place)
        name = chunk.path_in_schema.partition(".")[0]
        if name in columns:
            found[name] += chunk.total_uncompressed_size
    return found


def _may_hold(file: pq.ParquetFile, number: int, low: int, high: int) -> bool:
    """By the statistics of the column `step`."""
    place = file.schema.names.index("step")
    found = file.metadata.row_group(number).column(place).statistics
    return found is None or not found.has_min_max or (found.min <= high and found.max >= low)


def _last_group(table: pa.Table) -> int:
    """The row at which the last group begins: more of it may follow."""
    if not table.num_rows:
        return 0
    step, group = (table[name].to_numpy() for name in ("step", "group_id"))
    others = np.flatnonzero((step != step[-1]) | (group != group[-1]))
    return int(others[-1]) + 1 if len(others) else 0
