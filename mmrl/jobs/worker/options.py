"""What a worker is started with."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Drain = Literal["wait", "handover", "leave"]


def default_cpus() -> int:
    """The CPU slots of a worker that is not told: the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@dataclass(frozen=True)
class WorkerOptions:
    """pool: whose jobs it takes. cpus: slots. gpus: UUIDs. job_id: takes this job alone.

    until_idle: ends when nothing is left that it could take. once: ends after one job.
    drain: on SIGTERM the worker waits for its runs, hands them over (each writes a checkpoint and goes back to the
    queue), or leaves them running for the next worker of this machine to adopt.
    port: of /metrics and /healthz; 0 is a free one, None none. bind: the address that it listens at.
    ray_address: of a Ray cluster's dashboard; without it the worker takes no jobs for Ray. working_dir: code of the
    user's own that is sent to it.
    trainer: the command that trains a config.
    """

    pool: str = "default"
    cpus: int = 1
    gpus: tuple[str, ...] = ()
    job_id: str | None = None
    until_idle: bool = False
    once: bool = False
    drain: Drain = "wait"
    port: int | None = 0
    bind: str = "127.0.0.1"
    ray_address: str | None = None
    working_dir: Path | None = None
    trainer: tuple[str, ...] = (sys.executable, "-m", "mmrl", "train")

    def num_threads(self, cpus: int) -> int:
        """Threads for numbers of a run that takes so many slots: its share of the cores, so that runs beside each other
        do not slow each other down many times over; all of them where the worker has one job alone."""
        if self.job_id is not None:
            return default_cpus()
        return max(1, default_cpus() * cpus // self.cpus)
