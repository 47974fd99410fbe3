"""The console as a process of its own, as people start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_S = 60
_END_S = 60


@dataclass
class ConsoleProcess:
    """url: where it answers. log: what it, and its worker, wrote to stderr."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def end(self) -> int:
        """As Ctrl-C does; gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def console_process(home: Path, *words: str, environment: Mapping[str, str] | None = None) -> Iterator[ConsoleProcess]:
    """`mmrl console` on a free port in a home. words: further ones of the command line."""
    log = home.parent / f"{home.name}-console.log"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MMRL_", "STREAMLIT_"))}
    own |= {"MMRL_HOME": str(home), "MMRL_JOBS_POLL_S": "0.2", "PYTHONUNBUFFERED": "1", **(environment or {})}
    command = [sys.executable, "-m", "mmrl", "console", "--port", "0", *words]
    with log.open("a") as err:
        process = subprocess.Popen(
            command, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, text=True
        )
    too_late = threading.Timer(_START_S, process.kill)
    too_late.start()
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        too_late.cancel()
        assert url, f"mmrl console did not start:\n{log.read_text()}"
        yield ConsoleProcess(process, url, log)
    finally:
        too_late.cancel()
        ConsoleProcess(process, "", log).end()
