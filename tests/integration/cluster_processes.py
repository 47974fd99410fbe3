"""The processes of a Ray that a test has started, and whether anything is left of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from mmrl.cluster.watchdog import is_running, wait_gone

_LOG_DIR = re.compile(r"--log_dir=(\S*mmrl-ray-\w+)/session_")


@dataclass(frozen=True)
class RayProcesses:
    """pids: of all that this process has started and what that has. folder: where its Ray keeps its files."""

    pids: tuple[int, ...]
    folder: Path

    @classmethod
    def of_this_process(cls) -> RayProcesses:
        here = psutil.Process().children(recursive=True)
        (folder,) = {match[1] for child in here for match in _LOG_DIR.finditer(" ".join(child.cmdline()))}
        return cls(tuple(child.pid for child in here), Path(folder))

    def check_gone(self, *, timeout_s: float = 10, but: Iterable[int] = ()) -> None:
        """Raises AssertionError with what is left."""
        pids = [pid for pid in self.pids if pid not in set(but)]
        wait_gone(pids, timeout_s=timeout_s)
        assert [_name(pid) for pid in pids if is_running(pid)] == []
        assert not self.folder.exists()


def _name(pid: int) -> str:
    try:
        return f"{pid} {psutil.Process(pid).name()}"
    except psutil.Error:
        return str(pid)
