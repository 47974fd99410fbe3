"""How a worker gets a job: the first in its pool's queue that it can hold whole, CPU slots and named GPUs alike.

On PostgreSQL the rows that decide are locked in one order everywhere: pool, worker, job. On SQLite the whole database
is locked from the beginning of the transaction. The statements are built once; see `transitions`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.records import Lease
from mmrl.jobs.rows import JOB_COLUMNS, to_job
from mmrl.jobs.states import JobState
from mmrl.jobs.transitions import add_event

_JOBS, _WORKERS, _POOLS, _GPUS = tables.jobs, tables.workers, tables.pools, tables.gpu_leases
_IS_HELD = sa.text(tables.HELD_SQL)


def slots(jobs: Any) -> sa.ColumnElement[int]:
    """CPU slots that a job takes of its worker: one, where its resources are Ray's."""
    return sa.case((jobs.c.backend == "ray", 1), else_=jobs.c.cpus)


_HELD = _JOBS.alias("held")

_POOL_OF = (
    sa.select(_POOLS.c.name, _POOLS.c.capacity, _WORKERS.c.gpus)
    .join_from(_WORKERS, _POOLS, _POOLS.c.name == _WORKERS.c.pool)
    .where(_WORKERS.c.id == bindparam("of_worker"))
)
_LOCK_POOL = sa.select(_POOLS.c.capacity).where(_POOLS.c.name == bindparam("of_pool")).with_for_update()
_NUM_HELD = sa.select(sa.func.count()).select_from(_JOBS).where(_JOBS.c.pool == bindparam("of_pool"), _IS_HELD)
_LOCK_WORKER = (
    sa.select(_WORKERS, _POOLS.c.capacity)
    .join_from(_WORKERS, _POOLS, _POOLS.c.name == _WORKERS.c.pool)
    .where(_WORKERS.c.id == bindparam("of_worker"))
    .with_for_update(of=_WORKERS)
)
_TAKEN = sa.select(_GPUS.c.gpu_uuid).where(
    _GPUS.c.released_at.is_(None), _GPUS.c.gpu_uuid.in_(bindparam("gpus", expanding=True))
)
_USED_CPUS = (
    sa.select(sa.func.coalesce(sa.func.sum(slots(_HELD)), 0))
    .where(_HELD.c.worker_id == bindparam("of_worker"), _IS_HELD)
    .scalar_subquery()
)


@dataclass(frozen=True)
class Room:
    """A worker, its row locked, and its free GPUs by UUID."""

    worker: Any
    free_gpus: tuple[str, ...]


def claim_job(
    connection: sa.Connection, worker_id: str, *, lease_s: float, hold_back_s: float, job_id: str | None = None
) -> Lease | None:
    """Takes one job (`job_id`: that one) for the worker: attempt and epoch grow, GPUs are leased, the event is written.

    None where nothing fits, the worker is not active, or its pool is full.
    """
    room = _find_room(connection, worker_id)
    if room is None:
        return None
    token = secrets.token_hex(16)
    values = {
        "of_worker": worker_id,
        "of_pool": room.worker.pool,
        "num_cpus": room.worker.cpus,
        "num_gpus": len(room.worker.gpus),
        "free_gpus": len(room.free_gpus),
        "backends": list(room.worker.backends),
        "lease_s": lease_s,
        "hold_back_s": hold_back_s,
        **({} if job_id is None else {"job": job_id}),
    }
    row = connection.execute(_claim(job_id is not None), values).first()
    if row is None:
        return None
    gpus = room.free_gpus[: row.gpus] if row.backend == "process" else ()
    _note_attempt(connection, room, row, gpus, token)
    change = (JobState.QUEUED, JobState.STARTING)
    add_event(connection, row.id, row.attempt, "claim", f"worker:{worker_id}", change, {"gpus": gpus})
    return Lease(row.id, worker_id, row.lease_epoch, row.attempt, token, gpus, to_job(row))


def ready(pool: sa.ColumnElement[str] | str) -> sa.ColumnElement[bool]:
    """Whether a job waits for nothing but a worker of the pool. The words of the queue's index, so that it is used."""
    return sa.and_(
        sa.text("state = 'queued' AND num_waited_for = 0"), _JOBS.c.pool == pool, _JOBS.c.available_at <= NOW
    )


def _find_room(connection: sa.Connection, worker_id: str) -> Room | None:
    """None unless the worker is active and its pool takes another job.

    The pool is locked first where claims in it must not cross: it has a capacity, or GPUs are given out.
    """
    pool = connection.execute(_POOL_OF, {"of_worker": worker_id}).first()
    if pool is None:
        return None
    if pool.gpus or pool.capacity is not None:
        capacity = connection.execute(_LOCK_POOL, {"of_pool": pool.name}).scalar_one()
        num_held = connection.execute(_NUM_HELD, {"of_pool": pool.name}).scalar_one() if capacity is not None else 0
        if capacity is not None and num_held >= capacity:
            return None
    worker = connection.execute(_LOCK_WORKER, {"of_worker": worker_id}).first()
    if worker is None or worker.state != "active":
        return None
    taken: set[str] = set()
    if worker.gpus:
        taken = set(connection.execute(_TAKEN, {"gpus": list(worker.gpus)}).scalars())
    return Room(worker, tuple(gpu for gpu in worker.gpus if gpu not in taken))


def _fits(cpus: Any, num_gpus: Any) -> sa.ColumnElement[bool]:
    """Whether a job fits into so many CPU slots and GPUs. Ray looks for the resources of its own jobs."""
    return sa.and_(cpus >= slots(_JOBS), sa.or_(_JOBS.c.backend == "ray", _JOBS.c.gpus <= num_gpus))


@cache
def _claim(is_named: bool) -> sa.UpdateBase:
    """Picks and takes in one statement. Picked is the first job that the worker could hold if it were empty, and that
    fits now or has waited so long that nothing may overtake it here any more; taken is it only if it fits.
    """
    fits_now = _fits(bindparam("num_cpus", type_=sa.Integer) - _USED_CPUS, bindparam("free_gpus", type_=sa.Integer))
    has_waited = _JOBS.c.queued_at + bindparam("hold_back_s", type_=sa.Double) <= NOW
    could = _fits(bindparam("num_cpus", type_=sa.Integer), bindparam("num_gpus", type_=sa.Integer))
    query = sa.select(_JOBS.c.id, fits_now.label("fits")).where(
        ready(bindparam("of_pool", type_=sa.Text)),
        _JOBS.c.backend.in_(bindparam("backends", expanding=True)),
        could,
        sa.or_(fits_now, has_waited),
    )
    if is_named:
        query = query.where(_JOBS.c.id == bindparam("job"))
    first = query.order_by(_JOBS.c.priority.desc(), _JOBS.c.id).limit(1).with_for_update(skip_locked=True)
    picked = first.cte("picked")
    values = {
        "state": JobState.STARTING.value,
        "attempt": _JOBS.c.attempt + 1,
        "lease_epoch": _JOBS.c.lease_epoch + 1,
        "worker_id": bindparam("of_worker"),
        "lease_expires_at": NOW + bindparam("lease_s", type_=sa.Double),
        "started_at": sa.func.coalesce(_JOBS.c.started_at, NOW),
        "error_class": None,
        "error_message": None,
        "exit_code": None,
    }
    taken = sa.select(picked.c.id).where(picked.c.fits).scalar_subquery()
    is_it = sa.and_(_JOBS.c.id == taken, _JOBS.c.state == JobState.QUEUED.value)
    return _JOBS.update().where(is_it).values(values).returning(*JOB_COLUMNS)


def _note_attempt(connection: sa.Connection, room: Room, row: Any, gpus: tuple[str, ...], token: str) -> None:
    attempt = {
        "job_id": row.id,
        "attempt": row.attempt,
        "backend": row.backend,
        "worker_id": row.worker_id,
        "host": room.worker.host,
        "boot_id": room.worker.boot_id,
        "token": token,
    }
    connection.execute(_INSERT_ATTEMPT, attempt)
    if gpus:
        leases = [{"gpu_uuid": gpu, "job_id": row.id, "attempt": row.attempt} for gpu in gpus]
        connection.execute(_INSERT_GPUS, leases)


_INSERT_ATTEMPT = tables.attempts.insert().values(started_at=NOW)
_INSERT_GPUS = _GPUS.insert().values(acquired_at=NOW)
