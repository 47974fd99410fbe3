"""`mmrl` with a worker that dies, or whose clock jumps, at a moment that only patched code hits: MOMENT WORD …"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from mmrl.cli.app import main
from mmrl.jobs.leases import Leases
from mmrl.jobs.worker.process_launcher import ProcessLauncher
from mmrl.jobs.worker.supervised import Supervised


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_submit() -> None:
    """The job is claimed; nothing was started."""
    ProcessLauncher.start = die  # type: ignore[method-assign, assignment]


def before_external_id() -> None:
    """The trainer runs; the database does not know its process."""
    Leases.started = die  # type: ignore[method-assign]


def before_the_end_is_written() -> None:
    """The run is done and its end is known to the worker alone."""
    Supervised._settle = die  # type: ignore[method-assign, assignment]


def clock_jumps() -> None:
    """The wall clock of the worker goes a day forward and a day back, again and again."""
    real = time.time
    time.time = lambda: real() + 86400 * ((int(real() * 4) % 3) - 1)  # type: ignore[assignment]


if __name__ == "__main__":
    moment, *words = sys.argv[1:]
    globals()[moment]()
    sys.exit(main(words))
