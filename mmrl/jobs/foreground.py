"""A worker in a thread of a command that waits for its jobs: what `mmrl run` and `mmrl pipeline run` do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mmrl.jobs.database import Database
from mmrl.jobs.worker.gpus import chosen_gpus, make_probe
from mmrl.jobs.worker.options import WorkerOptions, default_cpus
from mmrl.jobs.worker.worker import Worker

Say = Callable[[str], None]


@contextmanager
def foreground_worker(
    database: Database,
    *,
    pool: str = "default",
    job_id: str | None = None,
    cpus: int | None = None,
    verbose: int = 0,
    say: Say,
) -> Iterator[threading.Thread]:
    """The worker's thread; it takes the jobs of a pool, or one of them alone, and has no port.

    cpus: slots; the cores of this machine unless said. On leaving it takes nothing new and waits for what it has.
    """
    probe = make_probe()
    options = WorkerOptions(
        pool=pool,
        cpus=cpus or default_cpus(),
        gpus=chosen_gpus("all", probe),
        job_id=job_id,
        port=None,
        trainer=(sys.executable, "-m", "mmrl", "train", *["-v"] * verbose),
    )
    worker = Worker(database, options, say=say, probe=probe)
    thread = threading.Thread(target=worker.run, name="mmrl-worker")
    thread.start()
    try:
        yield thread
    finally:
        worker.drain()
        thread.join()
