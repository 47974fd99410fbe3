"""Many small shards of samples as one larger file, which queries over a whole run read several times faster.

attempt-2/index/train-000001-000064.parquet: the rows of the shards of those steps, without what is per token. The
shards themselves stay as they are; the index then names this file in their place.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

from mmrl.jobs.records import ShardRow
from mmrl.runs.disk import write_whole

FULL_SHARDS = 64
"""So many small shards of a split make one file."""
LEFT_AT_END = 8
"""When a run ends, more than so many are brought together too."""
SMALL_ROWS = 4096
"""A shard with so many rows is large enough by itself."""
_ROW_GROUP = 2048
_AT_ONCE = 8
"""Rows after which a page may end: readers decompress it whole, and by default it has 1,024 texts however long."""


def due(shards: Sequence[ShardRow], *, at_end: bool) -> list[ShardRow]:
    """Those of one split's shards, by step and not compacted yet, that are to become one file now; empty where none."""
    small = [shard for shard in shards if shard.num_rows < SMALL_ROWS]
    if len(small) >= FULL_SHARDS:
        return small[:FULL_SHARDS]
    return small if at_end and len(small) > LEFT_AT_END else []


def compact(attempt_dir: Path, shards: Sequence[ShardRow]) -> ShardRow:
    """Writes the file that stands for `shards`, all of one split and in the order of their steps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mmrl.runs.shards import SCHEMA, TOKEN_COLUMNS

    columns = [name for name in SCHEMA.names if name not in TOKEN_COLUMNS]
    tables = []
    for shard in shards:
        file = pq.ParquetFile(shard.uri)
        tables.append(file.read(columns=[name for name in columns if name in file.schema_arrow.names]))
    table = pa.concat_tables(tables, promote_options="default")
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=_ROW_GROUP, compression="zstd", write_batch_size=_AT_ONCE)
    first, last = shards[0].step_lo, shards[-1].step_hi
    path = attempt_dir / "index" / f"{shards[0].split}-{first:06d}-{last:06d}.parquet"
    path.parent.mkdir(exist_ok=True)
    data = sink.getvalue()
    write_whole(path, data)
    return ShardRow(
        shards[0].split, first, last, str(path), table.num_rows, len(data), hashlib.sha256(data).hexdigest()
    )
