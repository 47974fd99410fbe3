"""How long a command computes, told so that a busy machine does not spoil the answer."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from subprocess import CompletedProcess

BARE_PYTHON_S = 0.05
"""What an idle machine needs to start Python and end it."""


def run_timed(command: Sequence[str], *, limit_s: float = 0.5, tries: int = 5) -> tuple[CompletedProcess[str], float]:
    """The finished process and the seconds of the quickest of up to `tries` runs; stops once below the limit.

    Processor time, as other processes make a command wait, not compute; and scaled by how long bare Python takes,
    as they take its share of the caches too.
    """
    best = float("inf")
    for _ in range(tries):
        _, bare = _timed([sys.executable, "-c", "pass"])
        done, seconds = _timed(command)
        best = min(best, seconds * min(1.0, BARE_PYTHON_S / bare))
        if best < limit_s:
            break
    return done, best


def _timed(command: Sequence[str]) -> tuple[CompletedProcess[str], float]:
    before = _children_s()
    done = subprocess.run(command, capture_output=True, text=True)
    return done, _children_s() - before


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
