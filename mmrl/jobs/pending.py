"""Why a job does not run yet: its place in the queue, and what is missing."""

from __future__ import annotations

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.claim_statements import ready
from mmrl.jobs.database import Database
from mmrl.jobs.fetching import read_fetches
from mmrl.jobs.pools import worker_records
from mmrl.jobs.records import Job, PendingReason, WorkerRecord
from mmrl.jobs.states import HELD, JobState

_NOT_QUEUED = {
    JobState.DRAFT: "it is a draft, which is not submitted yet",
    JobState.PAUSED: "it is paused; `mmrl job resume {id}` goes on with it",
    JobState.LOST: "its worker is gone; the next one of its host goes on with the run, any other starts it again from "
    "its checkpoint: `mmrl worker start --pool {pool}`",
}


def pending_reason(connection: sa.Connection, database: Database, job: Job) -> PendingReason:
    """The first thing that keeps the job from starting, in the order in which a claim would look."""
    fetch = read_fetches(connection, [job.id]).get(job.id) if job.state is JobState.STARTING else None
    if fetch is not None:
        waited_s = max(0.0, database.now(connection) - fetch.since.timestamp())
        return PendingReason("fetching", f"{fetch.message}, since {fetch.since:%H:%M:%S} UTC ({waited_s:.0f} s)")
    if job.state is not JobState.QUEUED:
        return PendingReason(
            "not_queued",
            _NOT_QUEUED.get(job.state, "it is not waiting: it is {state}").format(
                state=job.state, pool=job.pool, id=job.short_id
            ),
        )
    open_jobs = _open_dependencies(connection, job.id)
    if open_jobs:
        return PendingReason("dependency", f"waits for {', '.join(open_jobs)}")
    now = database.now(connection)
    if job.available_at is not None and job.available_at.timestamp() > now:
        wait = job.available_at.timestamp() - now
        why = f" (starts again after: {job.error_message})" if job.retries and job.error_message else ""
        text = f"not before {job.available_at:%Y-%m-%d %H:%M:%S} UTC, in {wait:.0f} s{why}"
        return PendingReason("not_before", text)
    position = _position(connection, database, job)
    alive = [worker for worker in worker_records(connection, database) if worker.is_alive]
    code, text = _missing(connection, job, alive, position)
    return PendingReason(code, f"{position} in the queue of pool {job.pool}: {text}", position)


def _open_dependencies(connection: sa.Connection, job_id: str) -> list[str]:
    jobs, waits = tables.jobs, tables.job_dependencies
    query = (
        sa.select(jobs.c.id, jobs.c.name, jobs.c.state)
        .join_from(waits, jobs, waits.c.depends_on == jobs.c.id)
        .where(waits.c.job_id == job_id, jobs.c.state != JobState.SUCCEEDED.value)
        .order_by(jobs.c.id)
    )
    return [f"job {row.id} ({row.name}), which is {row.state}" for row in connection.execute(query)]


def _position(connection: sa.Connection, database: Database, job: Job) -> int:
    jobs = tables.jobs
    before = sa.or_(jobs.c.priority > job.priority, sa.and_(jobs.c.priority == job.priority, jobs.c.id < job.id))
    query = sa.select(sa.func.count()).where(ready(job.pool), before)
    return int(connection.execute(query).scalar_one()) + 1


def _missing(connection: sa.Connection, job: Job, alive: list[WorkerRecord], position: int) -> tuple[str, str]:
    own = [worker for worker in alive if worker.pool == job.pool and job.backend in worker.backends]
    active = [worker for worker in own if worker.state == "active"]
    if not active:
        others = sorted({worker.pool for worker in alive if worker.state == "active"} - {job.pool})
        hint = f"; pools with workers: {', '.join(others)}" if others else ""
        draining = f" ({len(own)} draining)" if own else ""
        return "no_worker", f"no worker for pool {job.pool}{draining}; `mmrl worker start --pool {job.pool}`{hint}"
    cpus = 1 if job.backend == "ray" else job.cpus
    gpus = 0 if job.backend == "ray" else job.gpus
    large = [worker for worker in active if worker.cpus >= cpus and len(worker.gpus) >= gpus]
    if not large:
        most = max(active, key=lambda worker: (len(worker.gpus) >= gpus, worker.cpus, len(worker.gpus)))
        return (
            "too_large",
            f"needs {_need(cpus, gpus)}, and no worker has as many (the largest: {_need(most.cpus, len(most.gpus))})",
        )
    full = _full_pool(connection, job.pool)
    if full:
        return "pool_full", full
    free_gpus, num_gpus = _free_gpus(connection, large)
    free_cpus = _free_cpus(connection, large)
    if gpus and max(free_gpus.values()) < gpus:
        return "busy", f"too few GPUs: {max(free_gpus.values())} of {num_gpus} free on one worker, needs {gpus}"
    if max(free_cpus.values()) < cpus:
        return "busy", f"too few CPU slots: {max(free_cpus.values())} free on one worker, needs {cpus}"
    if position > 1:
        return "busy", f"{position - 1} before it"
    return "next", "a worker takes it at its next look"


def _full_pool(connection: sa.Connection, pool: str) -> str | None:
    jobs, pools = tables.jobs, tables.pools
    capacity = connection.execute(sa.select(pools.c.capacity).where(pools.c.name == pool)).scalar_one_or_none()
    if capacity is None:
        return None
    held = sa.select(sa.func.count()).where(jobs.c.pool == pool, jobs.c.state.in_([state.value for state in HELD]))
    num_held = connection.execute(held).scalar_one()
    return f"the pool is full: {num_held} of {capacity} jobs at once" if num_held >= capacity else None


def _free_gpus(connection: sa.Connection, workers: list[WorkerRecord]) -> tuple[dict[str, int], int]:
    """Free GPUs of each worker, and how many the best of them has."""
    leases = tables.gpu_leases
    taken = set(connection.execute(sa.select(leases.c.gpu_uuid).where(leases.c.released_at.is_(None))).scalars())
    free = {worker.id: len(set(worker.gpus) - taken) for worker in workers}
    return free, max(len(worker.gpus) for worker in workers)


def _free_cpus(connection: sa.Connection, workers: list[WorkerRecord]) -> dict[str, int]:
    jobs = tables.jobs
    slots = sa.func.sum(sa.case((jobs.c.backend == "ray", 1), else_=jobs.c.cpus))
    held = sa.select(jobs.c.worker_id, slots.label("cpus")).where(jobs.c.state.in_([state.value for state in HELD]))
    used = {row.worker_id: int(row.cpus) for row in connection.execute(held.group_by(jobs.c.worker_id))}
    return {worker.id: worker.cpus - used.get(worker.id, 0) for worker in workers}


def _need(cpus: int, gpus: int) -> str:
    slots, cards = f"{cpus} CPU slot{'' if cpus == 1 else 's'}", f"{gpus} GPU{'' if gpus == 1 else 's'}"
    return f"{slots} and {cards}" if gpus else slots
