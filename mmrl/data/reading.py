"""All rows of a source as samples, in this process for a small source, in several for a large one."""

from __future__ import annotations

import os
from collections.abc import Generator
from itertools import chain, islice

from mmrl.data.normalise import ImageSink
from mmrl.data.row_pool import RowPool
from mmrl.data.row_worker import ReadRow, read_row
from mmrl.data.rows import RowError
from mmrl.data.sources import Source, read_raw

ROWS_READ_HERE = 64
"""So many rows are read before processes are started, which takes them a third of a second."""


def read_all(
    source: Source, add_image: ImageSink, *, limit: int | None = None, workers: int | None = None
) -> Generator[ReadRow | RowError, None, None]:
    """What became of each row, or of the first `limit`, in order.

    add_image: a method of an ImageStore, or a function that other processes can import.
    workers: processes that decode; by default one for each core that this process may use. 0 reads all here.
    """
    rows = islice(read_raw(source), limit)
    for row in islice(rows, None if workers == 0 else ROWS_READ_HERE):
        yield read_row(row, source, add_image)
    following = next(rows, None)
    if following is None:
        return
    with RowPool(source, add_image, workers=workers or num_cores()) as pool:
        yield from pool.read(chain([following], rows))


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
