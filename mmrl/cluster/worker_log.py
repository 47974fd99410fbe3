"""What a worker process says: into a file of its own, also what compiled code and crashes write."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

STACKS_SIGNAL = signal.SIGUSR1
"""Makes a worker write the Python stacks of its threads to its log, even while compiled code holds it."""

_TAIL_BYTES = 16_384


def log_path(folder: Path, pool: str, rank: int) -> Path:
    return folder / f"worker-{pool}-{rank}.log"


def send_output_to(path: Path, *, level: int) -> None:
    """Everything that this process writes to stdout and stderr from now on, and what mmrl logs at `level`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(sys.stderr)
    faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True)
    _log_to_stderr(level)


def last_lines(path: Path, count: int = 20) -> list[str]:
    """The end of a log; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]


def thread_stacks() -> dict[int, str]:
    """The Python stack of each thread of this process, by its identity."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        ident: f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame)).rstrip()}"
        for ident, frame in sys._current_frames().items()
    }


def _log_to_stderr(level: int) -> None:
    package = logging.getLogger("mmrl")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    package.handlers = [handler]
    package.propagate = False
    package.setLevel(level)
