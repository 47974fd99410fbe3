"""Processes that use the job database at once. Each function runs in a process of its own and puts what it found."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from job_rows import new_job

from mmrl.errors import MmrlError
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import WorkerInfo
from mmrl.jobs.schema import upgrade_schema
from mmrl.jobs.states import JobState

Work = Callable[..., Any]


def together(work: Work, url: str, count: int, *arguments: Any, timeout_s: float = 240.0) -> list[Any]:
    """`work(url, index, *arguments)` in `count` processes that begin at the same moment; what each returned, by index.

    They are forked off a process that has loaded this module already, which saves each the second that it takes.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier, results = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=_run, args=(work, url, index, arguments, barrier, results)) for index in range(count)
    ]
    for process in processes:
        process.start()
    try:
        found = sorted((results.get(timeout=timeout_s) for _ in processes), key=lambda item: item[0])
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    errors = [result for _, ok, result in found if not ok]
    assert not errors, errors
    return [result for _, _, result in found]


def _run(work: Work, url: str, index: int, arguments: tuple[Any, ...], barrier: Any, results: Any) -> None:
    try:
        barrier.wait()
        results.put((index, True, work(url, index, *arguments)))
    except BaseException as error:
        results.put((index, False, f"{type(error).__name__}: {error}"))


def claim_all(url: str, index: int, *, finish: bool = True) -> list[str]:
    """The ids of the jobs that this process claimed, until none is left."""
    with Database.open(url) as database:
        worker = Leases(database)
        worker.register(_info(index, cpus=1 if finish else 10_000))
        claimed = []
        while (lease := worker.claim()) is not None:
            claimed.append(lease.job_id)
            if finish:
                worker.move(lease, JobState.RUNNING, cause="started")
                worker.move(lease, JobState.SUCCEEDED, cause="finished", exit_code=0)
                worker.release(lease)
        return claimed


def claim_one(url: str, index: int, gpus: tuple[str, ...] = ()) -> str | None:
    with Database.open(url) as database:
        worker = Leases(database)
        worker.register(_info(index, gpus=gpus))
        lease = worker.claim()
        return None if lease is None else lease.job_id


def submit_one(url: str, index: int) -> str:
    with Database.open(url) as database:
        return Jobs(database).submit(new_job(idempotency_key="same")).id


def race_to_the_end(url: str, index: int, job_id: str, lease: Any) -> str:
    """Process 0 finishes the job, 1 fails it so that it would be tried again, the others cancel it."""
    from mmrl.jobs.retry import Failure

    with Database.open(url) as database:
        try:
            if index == 0:
                return str(Leases(database, lease.worker_id).move(lease, JobState.SUCCEEDED, cause="finished"))
            if index == 1:
                return str(Leases(database, lease.worker_id).fail(lease, Failure("killed", "signal 9", -9)))
            return str(Jobs(database).cancel(job_id).state)
        except MmrlError as error:
            return type(error).__name__


def cancel_or_claim(url: str, index: int, job_id: str) -> str:
    """Even processes claim, odd ones cancel."""
    if index % 2 == 0:
        return "claimed" if claim_one(url, index) is not None else "nothing"
    with Database.open(url) as database:
        return str(Jobs(database).cancel(job_id).state)


def upgrade(url: str, index: int) -> tuple[str | None, str]:
    with Database.open(url, check=False) as database:
        return upgrade_schema(database)


def open_fresh(url: str, index: int) -> int:
    """Opens a database that is empty, and uses it."""
    with Database.open(url) as database:
        return len(Jobs(database).list())


def beat_for(url: str, index: int, lease: Any, seconds: float) -> tuple[int, bool]:
    """Beats as fast as it can; the number of beats, and whether the lease was held at each."""
    with Database.open(url, check=False) as database:
        worker, count, held = Leases(database, lease.worker_id), 0, True
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            view = worker.beat([lease])[lease.job_id]
            held, count = held and view.is_held, count + 1
        return count, held


def beat_or_upgrade(url: str, index: int, lease: Any) -> Any:
    """Process 0 upgrades in the middle of the others' beats."""
    if index == 0:
        time.sleep(0.7)
        return upgrade(url, index)
    return beat_for(url, index, lease, 3.0)


def _info(index: int, *, cpus: int = 4, gpus: tuple[str, ...] = ()) -> WorkerInfo:
    return WorkerInfo(host="host", boot_id="boot", pid=index + 1, pid_start_time=1.0, cpus=cpus, gpus=gpus)
