"""Raw rows to samples in several processes, in order, with few rows in flight.

The caller's process reads the file; clean processes (`row_worker`), started without its modules and threads, decode,
hash and store. A process that a row kills or holds up is replaced: that row becomes an error, the others are read
again. So memory does not grow with the file, and no row can end or stop the reading of a data set.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any, BinaryIO, cast

from mmrl.data.normalise import ImageSink
from mmrl.data.row_worker import PROGRESS, ReadRow, RowJob
from mmrl.data.rows import RawRow, RowError
from mmrl.data.sources import Source
from mmrl.errors import MmrlError

ROW_DEADLINE_S = 120.0
"""A row that takes longer, downloads of its images included, counts as one that cannot be read."""

START_DEADLINE_S = 120.0
"""Seconds for a process to start, on a machine that is busy."""

MAX_IDLE_ENDS = 3
"""Processes that may end between two rows, for want of memory say, before the reading is given up."""

_ROWS_A_BATCH = 32
_BYTES_A_BATCH = 2 * 2**20
_BATCHES_A_WORKER = 2
_BATCHES_WAITING = 2
_LOOK_EVERY_S = 1.0
_STOP_TIMEOUT_S = 5.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mmrl.data.row_worker import serve; "
    "serve(*map(int, sys.argv[2:]))"
)
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(eq=False)
class _Batch:
    """first: the position of its first row among all. results: one for each row, once there."""

    first: int
    rows: list[RawRow | RowError]
    results: list[ReadRow | RowError] | None = None


class RowPool:
    """Processes that read the rows of one source; a context manager that ends them.

    add_image: as for `RowJob`. deadline_s: seconds for one row.
    """

    def __init__(
        self, source: Source, add_image: ImageSink, *, workers: int, deadline_s: float = ROW_DEADLINE_S
    ) -> None:
        self._source = source
        self._job = RowJob(replace(source, unpacked=None), add_image)
        self._deadline_s = deadline_s
        self._workers = [_Worker(self._job) for _ in range(workers)]
        self._unassigned: deque[_Batch] = deque()
        self._num_idle_ends = 0

    def read(self, rows: Iterable[RawRow | RowError]) -> Iterator[ReadRow | RowError]:
        """What became of each row, in order. Raises MmrlError for what is no fault of a row."""
        batches = _batched(rows)
        pending: deque[_Batch] = deque()
        most = (_BATCHES_A_WORKER + _BATCHES_WAITING) * len(self._workers)
        while True:
            while len(pending) < most and (batch := next(batches, None)) is not None:
                pending.append(batch)
                self._unassigned.append(batch)
                self._hand_out()
            if not pending:
                return
            while pending[0].results is None:
                self._wait()
            yield from pending.popleft().results or ()

    def __enter__(self) -> RowPool:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._workers:
            worker.stop()

    def _hand_out(self) -> None:
        for worker in sorted(self._workers, key=lambda each: len(each.batches)):
            while self._unassigned and len(worker.batches) < _BATCHES_A_WORKER:
                worker.send(self._unassigned.popleft())

    def _wait(self) -> None:
        """Takes in what processes have sent; replaces those that died or hang."""
        ready = wait([worker.connection for worker in self._workers], timeout=_LOOK_EVERY_S)
        for index, worker in enumerate(self._workers):
            if worker.connection in ready:
                alive = worker.receive()
                if not alive:
                    self._replace(index, f"ended the process that read it ({worker.cause_of_end()})")
            elif worker.seconds_at_row() > (self._deadline_s if worker.row_at_work() >= 0 else START_DEADLINE_S):
                self._replace(index, f"took longer than {self._deadline_s:g} s to read")
        self._hand_out()

    def _replace(self, index: int, what: str) -> None:
        """A new process in place of one that a row has stopped; its other rows are read again."""
        worker = self._workers[index]
        worker.stop()
        culprit = worker.row_at_work()
        batch = next((each for each in worker.batches if each.first <= culprit < each.first + len(each.rows)), None)
        self._unassigned.extendleft(reversed(worker.batches))
        if batch is None:
            self._num_idle_ends += 1
            if self._num_idle_ends > MAX_IDLE_ENDS:
                raise MmrlError(f"processes that read rows end before they begin one: {worker.last_words()}")
            self._workers[index] = _Worker(self._job)
            return
        position = culprit - batch.first
        row = batch.rows[position]
        name = (row.file or self._source.file.name) if isinstance(row, RawRow) else row.file
        number = row.number if isinstance(row, RawRow) else row.row
        batch.rows[position] = RowError(
            name, number, "", f"{what}; its image may be damaged or far too large: mend it, or leave the row out"
        )
        self._workers[index] = _Worker(self._job)


class _Worker:
    """One process and the batches that it has, in the order in which it reads them."""

    def __init__(self, job: RowJob) -> None:
        self.batches: deque[_Batch] = deque()
        self.connection, theirs = multiprocessing.Pipe()
        self._slots = [_nameless_file() for _ in range(_BATCHES_A_WORKER)]
        self._next_slot = 0
        self._errors = _nameless_file()
        with theirs, _nameless_file() as shared:
            shared.write(PROGRESS.pack(-1))
            self._progress = mmap.mmap(shared.fileno(), PROGRESS.size)
            descriptors = [theirs.fileno(), shared.fileno(), *(slot.fileno() for slot in self._slots)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=os.environ | _ONE_THREAD,
            )
        self._seen = (-1, time.monotonic())
        self._tell(pickle.dumps(job))

    def send(self, batch: _Batch) -> None:
        """Writes the rows where the process will read them, and tells it so; never waits for it."""
        if not self.batches:
            self._seen = (self.row_at_work(), time.monotonic())
        self.batches.append(batch)
        data = pickle.dumps(batch.rows, protocol=5)
        os.pwrite(self._slots[self._next_slot].fileno(), data, 0)
        self._tell(pickle.dumps((batch.first, self._next_slot, len(data))))
        self._next_slot = (self._next_slot + 1) % _BATCHES_A_WORKER

    def receive(self) -> bool:
        """Takes the results of the oldest batch; False if the process has ended instead."""
        try:
            results: Any = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return False
        if isinstance(results, MmrlError):
            raise results
        self.batches.popleft().results = results
        return True

    def row_at_work(self) -> int:
        """The position of the row that was begun last; -1 before the first."""
        return PROGRESS.unpack_from(self._progress, 0)[0]

    def seconds_at_row(self) -> float:
        """For how long the row at work has been seen to be at work; 0 if there is none."""
        now, row = time.monotonic(), self.row_at_work()
        if row != self._seen[0] or not self.batches:
            self._seen = (row, now)
        return now - self._seen[1]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(_STOP_TIMEOUT_S)
        self.connection.close()
        for file in self._slots:
            file.close()

    def cause_of_end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_STOP_TIMEOUT_S)
            return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return "its connection broke"

    def last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else self.cause_of_end()

    def _tell(self, message: bytes) -> None:
        # A process that has ended is noticed, and its batches are read again, when its connection is next looked at.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(message)


def _nameless_file() -> BinaryIO:
    """In memory where the system can, else in the folder for temporary files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("mmrl-rows"), "w+b", buffering=0)
    return cast(BinaryIO, tempfile.TemporaryFile(buffering=0))


def _batched(rows: Iterable[RawRow | RowError]) -> Iterator[_Batch]:
    """Rows in portions that are bounded in number and in bytes."""
    first, batch, num_bytes = 0, list[RawRow | RowError](), 0
    for row in rows:
        batch.append(row)
        num_bytes += _num_bytes(row.values) if isinstance(row, RawRow) else 0
        if len(batch) == _ROWS_A_BATCH or num_bytes >= _BYTES_A_BATCH:
            yield _Batch(first, batch)
            first, batch, num_bytes = first + len(batch), [], 0
    if batch:
        yield _Batch(first, batch)


def _num_bytes(value: Any) -> int:
    """Bytes and characters in a row's values, roughly."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_num_bytes, value.values()))
    return sum(map(_num_bytes, value)) if isinstance(value, list | tuple) else 8
