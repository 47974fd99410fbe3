"""Waits for whatever comes first: a run's end, a beat, a signal, or the time."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterable

from mmrl.jobs.worker.launcher import Handle


class Waiter:
    """May be woken after it was closed, by a thread that was left behind: its descriptors are another file's by then,
    such as the database's, and nothing is written there."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come while its own thread holds it
        self._is_closed = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def wake(self) -> None:
        """From any thread or signal handler: the wait ends now, or the next one at once."""
        with self._lock, contextlib.suppress(OSError):
            if not self._is_closed:
                os.write(self._write, b".")

    def wait(self, handles: Iterable[Handle], timeout_s: float) -> None:
        descriptors = [number for handle in handles if (number := handle.fileno()) is not None]
        try:
            poll = select.poll()
            for number in (self._read, *descriptors):
                poll.register(number, select.POLLIN)
            poll.poll(max(0.0, timeout_s) * 1000)
        finally:
            for number in descriptors:
                os.close(number)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            os.close(self._read)
            os.close(self._write)
