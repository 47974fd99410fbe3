"""Ray itself: started for one run or joined, watched, and ended without a trace."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import ray

from mmrl.cluster import watchdog
from mmrl.cluster.worker_log import last_lines
from mmrl.errors import RunFailedError

LOCAL = "127.0.0.1"

_HEAD_PROCESSES = ("gcs_server", "raylet")
_CHECK_EVERY_S = 1.0
_MISSED_CHECKS = 3
_CONNECT_S = 5.0
_SHUTDOWN_S = 15.0


@dataclass
class RaySession:
    """A connection to Ray. folder: where a Ray started here keeps its files; None for a cluster that was joined.

    roots: the processes of a Ray started here that are the controller's own children. node_id: the node that the
    controller runs on.
    """

    address: str
    node_id: str
    folder: Path | None = None
    roots: list[psutil.Process] = field(default_factory=list)
    _heads: dict[int, str] = field(default_factory=dict)
    _all: dict[int, psutil.Process] = field(default_factory=dict)
    _watchdog: subprocess.Popen[str] | None = None
    _checked_at: float = 0.0
    _missed: int = 0

    @property
    def is_own(self) -> bool:
        return self.folder is not None

    def guard(self) -> None:
        """Takes note of all processes that Ray has started so far: none of them outlives the controller.

        What a process has started cannot be found any more when it is gone itself.
        """
        for root in self.roots:
            with contextlib.suppress(psutil.Error):
                for process in (root, *root.children(recursive=True)):
                    if process.pid not in self._all:
                        self._all[process.pid] = process
                        self.tell_watchdog(f"kill {process.pid} {process.create_time()}")
                if root.name() in _HEAD_PROCESSES:
                    self._heads[root.pid] = root.name()

    def check(self, *, now: bool = False) -> None:
        """Raises RunFailedError where Ray's head is gone. Looks once a second at most, unless it must be known now."""
        if not now and time.monotonic() - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = time.monotonic()
        lost = self._lost_process() if self.is_own else self._silent_head()
        if lost is not None:
            raise RunFailedError(f"{lost}; the workers have been ended")

    def _lost_process(self) -> str | None:
        for pid, name in self._heads.items():
            if not watchdog.is_running(pid):
                return f"Ray's head has stopped: its process {name} (pid {pid}) is gone{self._last_words(name)}"
        return None

    def _silent_head(self) -> str | None:
        try:
            connect(self.address)
            self._missed = 0
        except OSError as error:
            self._missed += 1
            if self._missed >= _MISSED_CHECKS:
                return f"the head of the Ray cluster at {self.address} does not answer any more ({error})"
        return None

    def _last_words(self, name: str) -> str:
        assert self.folder is not None
        files = sorted((self.folder / "session_latest" / "logs").glob(f"{name}.err"))
        lines = [line for file in files for line in last_lines(file, 5)]
        return "".join([", having written:", *(f"\n    {line}" for line in lines)]) if lines else ""

    def close(self) -> None:
        """Ends a Ray that was started here, or leaves the cluster. Again does nothing."""
        if self._watchdog is None and self.is_own:
            return
        processes = list(self._all.values())
        if self.is_own and not all(watchdog.is_running(pid) for pid in self._heads):
            _kill(processes)  # Ray's own shutdown asks the head, and would wait for it
        _shut_down()
        _kill(processes)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.tell_watchdog("done")
        if self._watchdog is not None:
            self._watchdog.communicate()
            self._watchdog = None

    def tell_watchdog(self, line: str) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(OSError):
                self._watchdog.stdin.write(f"{line}\n")
                self._watchdog.stdin.flush()


def connect(address: str) -> None:
    """Raises OSError where nobody listens at HOST:PORT, ValueError where it is none."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


def _shut_down() -> None:
    """Ray's own shutdown, which is not waited for where it hangs."""
    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(_SHUTDOWN_S)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_SHUTDOWN_S)
