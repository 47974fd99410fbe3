"""Processes of this machine, told apart for good: by number, start time and boot. A bare number may be reused.

Start times are seconds since the boot, as the kernel counts them, so a clock that is set changes none.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK_VARIABLE = "MMRL_JOB_ATTEMPT"
"""Every process of an attempt has `JOB/ATTEMPT` in its environment, also one that left the process group."""

_PROC = Path("/proc")
_FIRST_SPACE = "pid:[4026531836]"
"""The kernel's number of the first process space of every machine."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessIdentity:
    """start_time: seconds since the boot that boot_id names."""

    pid: int
    start_time: float
    boot_id: str

    @property
    def is_alive(self) -> bool:
        """Whether this very process runs; a zombie does not."""
        return self.boot_id == boot_id() and start_time_of(self.pid) == self.start_time


def identity_of(pid: int) -> ProcessIdentity | None:
    """None where no such process runs."""
    start = start_time_of(pid)
    return None if start is None else ProcessIdentity(pid, start, boot_id())


def own_identity() -> ProcessIdentity:
    own = identity_of(os.getpid())
    assert own is not None
    return own


@functools.cache
def boot_id() -> str:
    """Another one after each boot of the machine."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"boot-{psutil.boot_time():.0f}"


@functools.cache
def host_name() -> str:
    """This machine, as far as its processes are seen from here: a container that sees its own only is another."""
    try:
        space = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return socket.gethostname()
    return socket.gethostname() if space == _FIRST_SPACE else f"{socket.gethostname()}/{space}"


def start_time_of(pid: int) -> float | None:
    """None where no such process runs, or only its zombie is left."""
    fields = _stat(pid)
    if fields is None:
        return None
    return None if fields[0] in "ZX" else int(fields[19]) / _TICKS_PER_S


def members(mark: str, pgid: int | None = None, *, since: float = 0.0) -> list[ProcessIdentity]:
    """The running processes that carry the mark, and those of the process group `pgid` that started at `since` or later
    and carry no other mark. This process is never one of them."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    prefix = f"{MARK_VARIABLE}=".encode()
    found = []
    for pid in _pids():
        fields = _stat(pid)
        if fields is None or fields[0] in "ZX" or pid == os.getpid():
            continue
        environment = _environment(pid)
        start = int(fields[19]) / _TICKS_PER_S
        is_marked = wanted in environment
        other_mark = not is_marked and any(entry.startswith(prefix) for entry in environment)
        if is_marked or (pgid is not None and int(fields[2]) == pgid and start >= since and not other_mark):
            found.append(ProcessIdentity(pid, start, boot_id()))
    return found


def marks() -> dict[str, list[ProcessIdentity]]:
    """Mark -> the running processes of this machine that carry it."""
    prefix = f"{MARK_VARIABLE}=".encode()
    found: dict[str, list[ProcessIdentity]] = {}
    for pid in _pids():
        mark = next((entry for entry in _environment(pid) if entry.startswith(prefix)), None)
        process = identity_of(pid) if mark is not None and pid != os.getpid() else None
        if mark is not None and process is not None:
            found.setdefault(mark[len(prefix) :].decode("utf-8", "replace"), []).append(process)
    return found


def end(processes: list[ProcessIdentity]) -> None:
    """Kills them."""
    send(processes, signal.SIGKILL)


def send(processes: list[ProcessIdentity], number: signal.Signals) -> None:
    """A signal to those that still run."""
    for process in processes:
        if process.is_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)


def children_of(pid: int) -> list[int]:
    """The direct children that run."""
    return [other for other in _pids() if (fields := _stat(other)) is not None and int(fields[1]) == pid]


def _pids() -> Iterator[int]:
    if not (_PROC / "self").exists():
        yield from psutil.pids()
        return
    for name in os.listdir(_PROC):
        if name.isdecimal():
            yield int(name)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name: state, parent, process group, …"""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (OSError, ValueError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
