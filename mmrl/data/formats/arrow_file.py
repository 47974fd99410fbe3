"""Arrow IPC, as a file (Feather) or a stream (what `datasets` saves): mapped, not read whole. Counted from 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from mmrl.data.formats.arrow_rows import rows_of
from mmrl.data.formats.content import kind_of
from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError


def read(path: Path) -> Iterator[RawRow | RowError]:
    is_file = kind_of(path) == "arrow_file"
    try:
        with pa.memory_map(str(path)) as mapped:
            if is_file:
                table = pa.ipc.open_file(mapped)
                batches = (table.get_batch(index) for index in range(table.num_record_batches))
                yield from rows_of(batches, table.schema, path.name)
            else:
                stream = pa.ipc.open_stream(mapped)
                yield from rows_of(stream, stream.schema, path.name)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{path}: not an Arrow file that can be read: {str(error).splitlines()[0]}") from error
