"""The process that owns the pool of reward workers.

The trainer holds torch, threads and perhaps a GPU: forking it is unsafe, and spawning from it would run the user's
main script again. So the pool lives in a small clean process of its own (this one), which forks workers in
milliseconds. It reads `Setup` and then lists of `Job`s from a connection, and writes the problems found while
loading and then lists of `(job id, its Outcomes)`. It ends, and takes every worker and whatever they forked with
it, when the connection closes or its parent is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing.context
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import pebble

from mmrl.rewards.runner import worker
from mmrl.rewards.runner.dispatcher import ENDED_WITHOUT_A_CODE, TASKS_A_WORKER, Dispatcher, Done, Job
from mmrl.rewards.runner.worker import RewardSource

_GRACE_S = 0.25
_REAP_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl


@dataclass(frozen=True)
class Setup:
    """How the pool is to be; `memory_bytes` is the most that one worker may take."""

    sources: tuple[RewardSource, ...]
    workers: int
    memory_bytes: int


class _WorkerProcess(multiprocessing.context.ForkProcess):
    """A worker whose whole process group dies with it.

    The pool hears of a started task and of a dead worker in two threads. It must hear of the task first, or it takes
    the death for that of an idle worker; so a death is told a moment late.
    """

    _died_at: float | None = None
    _stopped = False

    def terminate(self) -> None:
        self._stopped = True
        if not _kill_group(self.pid):
            super().kill()

    def is_alive(self) -> bool:
        if super().is_alive():
            return True
        _kill_group(self.pid)
        self._died_at = self._died_at or time.monotonic()
        return not self._stopped and time.monotonic() - self._died_at < _GRACE_S

    @property
    def exitcode(self) -> int | None:
        """A worker that ends on its own has failed, even with code 0: the pool would forget its task otherwise."""
        code = super().exitcode
        return ENDED_WITHOUT_A_CODE if code == 0 and not self._stopped else code


class _Context(multiprocessing.context.ForkContext):
    Process = _WorkerProcess


class Server:
    """Hands jobs to the pool and their outcomes back.

    The trainer may be busy for minutes before it reads outcomes, and the connection holds few. A thread of its own
    waits for it: waiting in the pool's threads would keep them from seeing which tasks are done in time.
    """

    def __init__(self, connection: Connection, setup: Setup) -> None:
        self._connection = connection
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()
        places = memoryview(mmap.mmap(-1, 4 * TASKS_A_WORKER * setup.workers)).cast("i")
        self._pool = pebble.ProcessPool(
            max_workers=setup.workers,
            initializer=worker.start,
            initargs=(setup.sources, setup.memory_bytes, (connection.fileno(),), places),
            context=_Context(),
        )
        self._dispatcher = Dispatcher(self._pool, places, workers=setup.workers, deliver=self._done.put)

    def load_problems(self) -> list[str]:
        problems: list[str] = self._pool.schedule(worker.load_problems).result()
        return problems

    @property
    def is_broken(self) -> bool:
        """Whether the pool can do no more."""
        return self._dispatcher.is_broken

    def submit(self, jobs: Sequence[Job]) -> None:
        self._dispatcher.add(jobs)

    def stop(self) -> None:
        self._pool.stop()
        self._pool.join()
        _kill_orphans()

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._connection.send(self._done.get())


def serve(fd: int) -> None:
    """The whole life of the server process; `fd` is its end of the connection."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_REAP_ORPHANS, 1)
    pebble.CONSTS.term_timeout = 0.5
    pebble.CONSTS.sleep_unit = 0.05
    parent = os.getppid()
    with Connection(fd) as connection:
        setup: Setup = connection.recv()
        for source in setup.sources:
            source.preload()
        server = Server(connection, setup)
        try:
            connection.send(server.load_problems())
            _take_jobs(connection, server, parent)
        finally:
            server.stop()


def _take_jobs(connection: Connection, server: Server, parent: int) -> None:
    """Until the other end closes, its process is gone, or the pool can do no more."""
    while not server.is_broken and os.getppid() == parent:
        try:
            jobs: list[Job] = connection.recv() if connection.poll(0.2) else []
        except (EOFError, OSError):
            return
        server.submit(jobs)


def _kill_group(pid: int | None) -> bool:
    """Whether the process leads a group; all of it is killed then."""
    try:
        os.killpg(pid or 0, signal.SIGKILL) if pid else None
    except OSError:
        return False
    return pid is not None


def _kill_orphans() -> None:
    """Kill what workers forked and moved out of their groups: orphans come to this process (Linux)."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
