"""How a worker gets a job: the first in its pool's queue that it can hold whole, CPU slots and named GPUs alike.

On PostgreSQL the rows that decide are locked in one order everywhere: worker, pool, job. On SQLite the whole database
is locked from the beginning of the transaction.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.claim_statements import OnPostgres, OnSqlite
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.records import Lease
from mmrl.jobs.rows import job_of

_JOBS, _POOLS, _GPUS = tables.jobs, tables.pools, tables.gpu_leases
_POSTGRES, _SQLITE = OnPostgres(), OnSqlite()

_LOCK_POOL = sa.select(_POOLS.c.capacity).where(_POOLS.c.name == bindparam("of_pool")).with_for_update()
_NUM_HELD = (
    sa.select(sa.func.count()).select_from(_JOBS).where(_JOBS.c.pool == bindparam("of_pool"), sa.text(tables.HELD_SQL))
)
_TAKEN = sa.select(_GPUS.c.gpu_uuid).where(
    _GPUS.c.released_at.is_(None), _GPUS.c.gpu_uuid.in_(bindparam("gpus", expanding=True))
)
_INSERT_GPUS = _GPUS.insert().values(acquired_at=NOW)


@dataclass(frozen=True)
class Room:
    """A worker, its row locked, and its free GPUs by UUID."""

    worker: dict[str, Any]
    free_gpus: tuple[str, ...]


def claim_job(database: Database, worker_id: str, *, job_id: str | None = None) -> Lease | None:
    """Takes one job (`job_id`: that one) for the worker: attempt and epoch grow, GPUs are leased, the event is written.

    None where nothing fits, the worker is not active, or its pool is full. One thread at a time claims for a worker.
    """
    values: dict[str, Any] = {
        "of_worker": worker_id,
        "lease_s": database.settings.lease_s,
        "hold_back_s": database.settings.hold_back_s,
        "token": secrets.token_hex(16),
        "actor": f"worker:{worker_id}",
        **({} if job_id is None else {"job": job_id}),
    }
    if database.dialect == "postgresql":
        with database.statement() as driver:
            is_open, row = _POSTGRES.take_at_once(driver, values)
        if is_open:
            return None if row is None else Claimed(row, values["token"], (), _POSTGRES).lease(worker_id)
    with database.transaction(durable=False) as connection:
        claimed = _claim_locked(connection, values)
    return None if claimed is None else claimed.lease(worker_id)


def _claim_locked(connection: sa.Connection, values: dict[str, Any]) -> Claimed | None:
    """The worker's row is locked, and its pool's where that has a capacity or the worker has GPUs."""
    engine = _POSTGRES if connection.dialect.name == "postgresql" else _SQLITE
    room = _find_room(connection, engine, values["of_worker"])
    if room is None:
        return None
    worker = room.worker
    had = {
        "of_pool": worker["pool"],
        "num_cpus": worker["cpus"],
        "num_gpus": len(worker["gpus"]),
        "free_gpus": len(room.free_gpus),
        "a_backend": worker["backends"][0],
        "other_backend": worker["backends"][-1],
        "host": worker["host"],
        "boot_id": worker["boot_id"],
    }
    row = engine.take(connection, values | had)
    if row is None:
        return None
    claimed = Claimed(row, values["token"], room.free_gpus, engine)
    lease = claimed.lease(values["of_worker"]) if room.free_gpus else None
    if lease is not None and lease.gpus:
        leases = [{"gpu_uuid": gpu, "job_id": lease.job_id, "attempt": lease.attempt} for gpu in lease.gpus]
        connection.execute(_INSERT_GPUS, leases)
    return claimed


@dataclass(frozen=True)
class Claimed:
    """A job that was taken, as its row. What makes a lease of it may wait until the transaction has ended."""

    row: tuple[Any, ...]
    token: str
    free_gpus: tuple[str, ...]
    engine: OnPostgres | OnSqlite

    def lease(self, worker_id: str) -> Lease:
        job = job_of(self.engine.columns(self.row))
        gpus = self.free_gpus[: job.gpus] if job.backend == "process" else ()
        return Lease(job.id, worker_id, job.lease_epoch, job.attempt, self.token, gpus, job)


def _find_room(connection: sa.Connection, engine: OnPostgres | OnSqlite, worker_id: str) -> Room | None:
    """None unless the worker is active and its pool takes another job."""
    worker = engine.read_worker(connection, worker_id)
    if worker is None or worker["state"] != "active":
        return None
    gpus = worker["gpus"]
    if not gpus and worker["capacity"] is None:
        return Room(worker, ())
    pool = {"of_pool": worker["pool"]}
    capacity = connection.execute(_LOCK_POOL, pool).scalar_one()
    if capacity is not None and connection.execute(_NUM_HELD, pool).scalar_one() >= capacity:
        return None
    taken = set(connection.execute(_TAKEN, {"gpus": list(gpus)}).scalars()) if gpus else set()
    return Room(worker, tuple(gpu for gpu in gpus if gpu not in taken))
