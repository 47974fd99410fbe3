"""How a worker gets a job: the first in its pool's queue that it can hold whole, CPU slots and named GPUs alike.

On PostgreSQL the rows that decide are locked in one order everywhere: worker, pool, job. On SQLite the whole database
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
from mmrl.jobs.transitions import STATE_CHANNEL, add_event

_JOBS, _WORKERS, _POOLS, _GPUS = tables.jobs, tables.workers, tables.pools, tables.gpu_leases
_IS_HELD = sa.text(tables.HELD_SQL)


def slots(jobs: Any) -> sa.ColumnElement[int]:
    """CPU slots that a job takes of its worker: one, where its resources are Ray's."""
    return sa.case((jobs.c.backend == "ray", 1), else_=jobs.c.cpus)


_HELD = _JOBS.alias("held")

_LOCK_WORKER = (
    sa.select(_WORKERS, _POOLS.c.capacity)
    .join_from(_WORKERS, _POOLS, _POOLS.c.name == _WORKERS.c.pool)
    .where(_WORKERS.c.id == bindparam("of_worker"))
    .with_for_update(of=_WORKERS)
)
_LOCK_POOL = sa.select(_POOLS.c.capacity).where(_POOLS.c.name == bindparam("of_pool")).with_for_update()
_NUM_HELD = sa.select(sa.func.count()).select_from(_JOBS).where(_JOBS.c.pool == bindparam("of_pool"), _IS_HELD)
_TAKEN = sa.select(_GPUS.c.gpu_uuid).where(
    _GPUS.c.released_at.is_(None), _GPUS.c.gpu_uuid.in_(bindparam("gpus", expanding=True))
)
_INSERT_ATTEMPT = tables.attempts.insert().values(started_at=NOW)
_INSERT_GPUS = _GPUS.insert().values(acquired_at=NOW)


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
    told = {"host": room.worker.host, "boot_id": room.worker.boot_id, "token": token}
    actor = f"worker:{worker_id}"
    if connection.dialect.name == "postgresql":
        row = connection.execute(_claim_and_tell(job_id is not None), values | told | {"actor": actor}).first()
    else:
        row = connection.execute(_claim(job_id is not None), values).first()
    if row is None:
        return None
    if connection.dialect.name != "postgresql":
        attempt = {"job_id": row.id, "attempt": row.attempt, "backend": row.backend, "worker_id": worker_id}
        connection.execute(_INSERT_ATTEMPT, attempt | told)
        add_event(connection, row.id, row.attempt, "claim", actor, (JobState.QUEUED, JobState.STARTING))
    gpus = room.free_gpus[: row.gpus] if row.backend == "process" else ()
    if gpus:
        leases = [{"gpu_uuid": gpu, "job_id": row.id, "attempt": row.attempt} for gpu in gpus]
        connection.execute(_INSERT_GPUS, leases)
    return Lease(row.id, worker_id, row.lease_epoch, row.attempt, token, gpus, to_job(row))


def ready(pool: sa.ColumnElement[str] | str) -> sa.ColumnElement[bool]:
    """Whether a job waits for nothing but a worker of the pool. The words of the queue's index, so that it is used."""
    return sa.and_(
        sa.text("state = 'queued' AND num_waited_for = 0"), _JOBS.c.pool == pool, _JOBS.c.available_at <= NOW
    )


def _find_room(connection: sa.Connection, worker_id: str) -> Room | None:
    """None unless the worker is active and its pool takes another job.

    The pool is locked where claims in it must not cross: it has a capacity, or GPUs are given out.
    """
    worker = connection.execute(_LOCK_WORKER, {"of_worker": worker_id}).first()
    if worker is None or worker.state != "active":
        return None
    if not worker.gpus and worker.capacity is None:
        return Room(worker, ())
    pool = {"of_pool": worker.pool}
    capacity = connection.execute(_LOCK_POOL, pool).scalar_one()
    if capacity is not None and connection.execute(_NUM_HELD, pool).scalar_one() >= capacity:
        return None
    taken = set(connection.execute(_TAKEN, {"gpus": list(worker.gpus)}).scalars()) if worker.gpus else set()
    return Room(worker, tuple(gpu for gpu in worker.gpus if gpu not in taken))


def _fits(cpus: Any, num_gpus: Any) -> sa.ColumnElement[bool]:
    """Whether a job fits into so many CPU slots and GPUs. Ray looks for the resources of its own jobs."""
    return sa.and_(cpus >= slots(_JOBS), sa.or_(_JOBS.c.backend == "ray", _JOBS.c.gpus <= num_gpus))


@cache
def _claim(is_named: bool) -> sa.UpdateBase:
    """Picks and takes in one statement. Picked is the first job that the worker could hold if it were empty, and that
    fits now or has waited so long that nothing may overtake it here any more; taken is it only if it fits.
    """
    taken = sa.func.coalesce(sa.func.sum(slots(_HELD)), 0)
    used = sa.select((bindparam("num_cpus", type_=sa.Integer) - taken).label("cpus"))
    room = used.where(_HELD.c.worker_id == bindparam("of_worker"), _IS_HELD).cte("room")
    free_cpus = sa.select(room.c.cpus).scalar_subquery()  # not a join, for which SQLite would sort the whole queue
    fits_now = _fits(free_cpus, bindparam("free_gpus", type_=sa.Integer))
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
    first = query.order_by(_JOBS.c.priority.desc(), _JOBS.c.id).limit(1)
    picked = first.with_for_update(skip_locked=True).cte("picked")
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
    fitting = sa.select(picked.c.id).where(picked.c.fits).scalar_subquery()
    is_it = sa.and_(_JOBS.c.id == fitting, _JOBS.c.state == JobState.QUEUED.value)
    return _JOBS.update().where(is_it).values(values).returning(*JOB_COLUMNS)


@cache
def _claim_and_tell(is_named: bool) -> sa.Select[Any]:
    """On PostgreSQL the attempt, the event and the message go along in the same statement: three round trips less."""
    claimed = _claim(is_named).cte("claimed")
    attempts, events, outbox = tables.attempts, tables.job_events, tables.outbox
    attempt = {
        "job_id": claimed.c.id,
        "attempt": claimed.c.attempt,
        "backend": claimed.c.backend,
        "worker_id": claimed.c.worker_id,
        "started_at": NOW,
        **{name: bindparam(name, type_=sa.Text) for name in ("host", "boot_id", "token")},
    }
    event = {
        "job_id": claimed.c.id,
        "attempt": claimed.c.attempt,
        "at": NOW,
        "from_state": sa.literal(JobState.QUEUED.value),
        "to_state": sa.literal(JobState.STARTING.value),
        "cause": sa.literal("claim"),
        "actor": bindparam("actor", type_=sa.Text),
        "payload": sa.literal({}, sa.JSON),
    }
    noted = attempts.insert().from_select(list(attempt), sa.select(*attempt.values())).cte("noted")
    told = events.insert().from_select(list(event), sa.select(*event.values())).returning(events.c.id).cte("told")
    message = sa.select(told.c.id, sa.literal(STATE_CHANNEL), sa.literal(0))
    sent = outbox.insert().from_select(["event_id", "channel", "tries"], message).cte("sent")
    return sa.select(claimed).add_cte(noted, sent)
