"""What a process that reads rows does: row by row from raw values to a Sample, images decoded and stored.

It is started by `mmrl.data.row_pool` and takes a `RowJob` from a connection. Then batches of raw rows come in files
without a name that both processes hold open, announced over the connection, and what became of each row goes back.
Before it begins a row it writes the row's number into memory that it shares with its parent, so that the parent knows
which row it was if the process ends or hangs. It ends when the connection closes.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import signal
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from mmrl.data.normalise import ImageSink
from mmrl.data.rows import RawRow, RowError
from mmrl.data.sources import Source, to_sample
from mmrl.errors import MmrlError
from mmrl.types import Sample

PROGRESS = struct.Struct("=q")
"""How the number of the row at work lies in shared memory: the position among all rows of the source, from 0."""

_OBJECTS_BEFORE_COLLECTION = 50_000
"""Rows hold no cycles; looking for some after every few of them would take a few percent of the time."""


@dataclass(frozen=True)
class RowJob:
    """add_image: where images go; it is sent along, so a method of an ImageStore or a plain function."""

    source: Source
    add_image: ImageSink


@dataclass(frozen=True)
class ReadRow:
    """A good row. row: its physical line or row number."""

    row: int
    sample: Sample


def read_row(row: RawRow | RowError, source: Source, add_image: ImageSink) -> ReadRow | RowError:
    """The row as a sample, or what is wrong with it. What nobody foresaw is an error of its row too.

    Raises MmrlError for what is no fault of the row, such as a full disk.
    """
    if isinstance(row, RowError):
        return row
    try:
        result = to_sample(row, source, add_image)
    except MmrlError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or ["no message"])[0][:200]
        message = (
            f"the row cannot be read ({type(error).__name__}: {reason}); look for what sets it apart, or leave it out"
        )
        return RowError(row.file or source.file.name, row.number, "", message)
    return result if isinstance(result, RowError) else ReadRow(row.number, result)


def serve(connection_fd: int, progress_fd: int, *slot_fds: int) -> None:
    """Reads batches until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    connection = Connection(connection_fd)
    with contextlib.suppress(EOFError, OSError), mmap.mmap(progress_fd, PROGRESS.size) as progress:
        job: RowJob = pickle.loads(connection.recv_bytes())
        while True:
            first, slot, num_bytes = connection.recv()
            rows = pickle.loads(os.pread(slot_fds[slot], num_bytes, 0))
            connection.send_bytes(pickle.dumps(_results(first, rows, job, progress), protocol=5))


def _results(first: int, rows: Sequence[RawRow | RowError], job: RowJob, progress: mmap.mmap) -> Any:
    """A ReadRow or RowError for each row; an MmrlError if it is no fault of a row."""
    results = []
    for position, row in enumerate(rows, start=first):
        PROGRESS.pack_into(progress, 0, position)
        try:
            results.append(read_row(row, job.source, job.add_image))
        except MmrlError as error:
            return error
    return results
