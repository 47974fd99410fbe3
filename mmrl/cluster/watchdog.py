"""A small process that clears up after a controller that was killed. Imports nothing heavier than psutil.

Its standard input is a pipe from the controller, with a line for each process (`kill PID CREATED`), folder
(`remove FOLDER`) and port whose ranks share memory (`share PORT`) that must not outlive it. `done` ends it without
doing anything; the end of the pipe, or another parent, means that the controller is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.5


def kill_tree(pid: int, created: float | None = None) -> bool:
    """SIGKILL to a process, its descendants, and what is in a group that it leads or led.

    created: when the process began. One that has taken its number since is left alone, and False returned.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if created is not None and abs(process.create_time() - created) > 1:
            return False
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    for end in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            if end is os.kill or _is_group(pid):
                end(pid, signal.SIGKILL)
    return True


def wait_gone(pids: list[int], *, timeout_s: float) -> None:
    """Until none of them runs any more."""
    deadline = time.monotonic() + timeout_s
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """False also for one that has ended and waits for its parent to take notice."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _is_group(pid: int) -> bool:
    """Whether there is a process group of that number, also where its leader has ended already."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getpgid(process.pid) == pid:
                return True
    return False


def _lines_until_alone() -> Iterator[str]:
    """What the controller writes, until it is gone."""
    controller, rest = os.getppid(), b""
    while os.getppid() == controller:
        if not select.select([0], [], [], _LOOK_EVERY_S)[0]:
            continue
        text = os.read(0, 65536)
        if not text:
            return
        *lines, rest = (rest + text).split(b"\n")
        yield from (line.decode() for line in lines)


def main() -> None:
    from mmrl import shared_memory

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes: list[tuple[int, float]] = []
    folders: list[str] = []
    ports: list[str] = []
    for line in _lines_until_alone():
        word, *rest = line.split(" ", 1)
        if word == "kill":
            number, since = rest[0].split()
            processes.append((int(number), float(since)))
        elif word == "remove":
            folders.append(rest[0])
        elif word == "share":
            ports.append(rest[0])
        elif word == "done":
            return
    killed = [pid for pid, created in processes if kill_tree(pid, created)]
    wait_gone(killed, timeout_s=_PATIENCE_S)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    for port in ports:
        shared_memory.remove(port)


if __name__ == "__main__":
    # It runs isolated, and must find mmrl also where that is on PYTHONPATH alone.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    main()
