"""How a worker gets a job: the first in its pool's queue that it can hold whole, CPU slots and named GPUs alike.

On PostgreSQL the rows that decide are locked in one order everywhere: pool, worker, job. On SQLite the whole database
is locked from the beginning of the transaction.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.records import Lease
from mmrl.jobs.rows import JOB_COLUMNS, to_job
from mmrl.jobs.states import HELD, JobState
from mmrl.jobs.transitions import add_event

_HELD = [state.value for state in HELD]


@dataclass(frozen=True)
class Room:
    """What a worker has and what of it is free. gpus: the UUIDs of the free ones."""

    pool: str
    backends: tuple[str, ...]
    cpus: int
    free_cpus: int
    num_gpus: int
    gpus: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return self.free_cpus >= self.cpus and len(self.gpus) == self.num_gpus


def claim_job(
    connection: sa.Connection,
    clock: sa.ColumnElement[float],
    worker_id: str,
    *,
    lease_s: float,
    hold_back_s: float,
    job_id: str | None = None,
) -> Lease | None:
    """Takes one job (`job_id`: that one) for the worker: attempt and epoch grow, GPUs are leased, the event is written.

    None where nothing fits, the worker is not active, or its pool is full.
    """
    room = find_room(connection, worker_id)
    if room is None:
        return None
    picked = connection.execute(_pick(room, clock, job_id)).first()
    if picked is None or _must_wait(connection, clock, room, picked, hold_back_s):
        return None
    table = tables.jobs
    values = {
        "state": JobState.STARTING.value,
        "attempt": table.c.attempt + 1,
        "lease_epoch": table.c.lease_epoch + 1,
        "worker_id": worker_id,
        "lease_expires_at": clock + lease_s,
        "started_at": sa.func.coalesce(table.c.started_at, clock),
        "error_class": None,
        "error_message": None,
        "exit_code": None,
    }
    claimed = table.update().where(table.c.id == picked.id, table.c.state == JobState.QUEUED.value)
    row = connection.execute(claimed.values(values).returning(*JOB_COLUMNS)).first()
    if row is None:
        return None
    gpus = room.gpus[: row.gpus] if row.backend == "process" else ()
    token = secrets.token_hex(16)
    _note_attempt(connection, clock, row, gpus, token)
    change = (JobState.QUEUED, JobState.STARTING)
    add_event(connection, clock, row.id, row.attempt, "claim", f"worker:{worker_id}", change, {"gpus": gpus})
    return Lease(row.id, worker_id, row.lease_epoch, row.attempt, token, gpus, to_job(row))


def find_room(connection: sa.Connection, worker_id: str) -> Room | None:
    """What the worker has free, its row locked; None unless it is active and its pool takes another job."""
    table = tables.workers
    worker = connection.execute(sa.select(table.c.pool, table.c.gpus).where(table.c.id == worker_id)).first()
    if worker is None or not _pool_takes_more(connection, worker.pool, has_gpus=bool(worker.gpus)):
        return None
    row = connection.execute(sa.select(table).where(table.c.id == worker_id).with_for_update()).first()
    if row is None or row.state != "active":
        return None
    jobs, leases = tables.jobs, tables.gpu_leases
    slots = sa.case((jobs.c.backend == "ray", 1), else_=jobs.c.cpus)
    used = sa.select(sa.func.coalesce(sa.func.sum(slots), 0)).where(
        jobs.c.worker_id == worker_id, jobs.c.state.in_(_HELD)
    )
    free_cpus = row.cpus - int(connection.execute(used).scalar_one())
    taken: set[str] = set()
    if row.gpus:
        is_open = sa.select(leases.c.gpu_uuid).where(leases.c.released_at.is_(None), leases.c.gpu_uuid.in_(row.gpus))
        taken = set(connection.execute(is_open).scalars())
    free = tuple(gpu for gpu in row.gpus if gpu not in taken)
    return Room(row.pool, tuple(row.backends), row.cpus, free_cpus, len(row.gpus), free)


def fits(cpus: int, num_gpus: int) -> sa.ColumnElement[bool]:
    """Whether a job fits into so many CPU slots and GPUs. Ray looks for the resources of its own jobs."""
    jobs = tables.jobs
    is_ray = sa.and_(jobs.c.backend == "ray", sa.literal(cpus) >= 1)
    return sa.or_(is_ray, sa.and_(jobs.c.backend != "ray", jobs.c.cpus <= cpus, jobs.c.gpus <= num_gpus))


def ready(clock: sa.ColumnElement[float], pool: str) -> sa.ColumnElement[bool]:
    """Whether a job waits for nothing but a worker of the pool."""
    jobs = tables.jobs
    return sa.and_(
        jobs.c.state == sa.literal_column("'queued'"),
        jobs.c.num_waited_for == sa.literal_column("0"),
        jobs.c.pool == pool,
        jobs.c.available_at <= clock,
    )


def _pool_takes_more(connection: sa.Connection, pool: str, *, has_gpus: bool) -> bool:
    """Locks the pool where claims in it must not cross: it has a capacity, or GPUs are given out."""
    pools, jobs = tables.pools, tables.jobs
    query = sa.select(pools.c.capacity).where(pools.c.name == pool)
    capacity = connection.execute(query.with_for_update() if has_gpus else query).scalar_one_or_none()
    if capacity is None:
        return True
    capacity = connection.execute(query.with_for_update()).scalar_one()
    held = sa.select(sa.func.count()).where(jobs.c.pool == pool, jobs.c.state.in_(_HELD))
    return capacity is None or connection.execute(held).scalar_one() < capacity


def _pick(room: Room, clock: sa.ColumnElement[float], job_id: str | None) -> sa.Select[Any]:
    jobs = tables.jobs
    query = sa.select(jobs.c.id, jobs.c.priority).where(ready(clock, room.pool), jobs.c.backend.in_(room.backends))
    query = query.where(fits(room.free_cpus, len(room.gpus)))
    if job_id is not None:
        query = query.where(jobs.c.id == job_id)
    return query.order_by(jobs.c.priority.desc(), jobs.c.id).limit(1).with_for_update(skip_locked=True)


def _must_wait(
    connection: sa.Connection, clock: sa.ColumnElement[float], room: Room, picked: Any, hold_back_s: float
) -> bool:
    """Whether a job before the picked one has waited so long for this worker to become empty enough that nothing may
    overtake it here any more."""
    if room.is_empty:
        return False
    jobs = tables.jobs
    before = sa.or_(
        jobs.c.priority > picked.priority, sa.and_(jobs.c.priority == picked.priority, jobs.c.id < picked.id)
    )
    query = sa.select(jobs.c.id).where(
        ready(clock, room.pool),
        before,
        jobs.c.backend.in_(room.backends),
        fits(room.cpus, room.num_gpus),
        sa.not_(fits(room.free_cpus, len(room.gpus))),
        jobs.c.queued_at + hold_back_s <= clock,
    )
    return connection.execute(query.limit(1)).first() is not None


def _note_attempt(
    connection: sa.Connection, clock: sa.ColumnElement[float], row: Any, gpus: tuple[str, ...], token: str
) -> None:
    workers = tables.workers
    mine = workers.c.id == row.worker_id
    attempt = {
        "host": sa.select(workers.c.host).where(mine).scalar_subquery(),
        "boot_id": sa.select(workers.c.boot_id).where(mine).scalar_subquery(),
        "job_id": row.id,
        "attempt": row.attempt,
        "backend": row.backend,
        "worker_id": row.worker_id,
        "token": token,
        "started_at": clock,
    }
    connection.execute(tables.attempts.insert().values(attempt))
    for gpu in gpus:
        lease = {"gpu_uuid": gpu, "job_id": row.id, "attempt": row.attempt, "acquired_at": clock}
        connection.execute(tables.gpu_leases.insert().values(lease))
