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
from mmrl.jobs.records import Lease
from mmrl.jobs.rows import job_of

_JOBS, _POOLS, _GPUS = tables.jobs, tables.pools, tables.gpu_leases
_ENGINES: dict[str, Any] = {"postgresql": OnPostgres(), "sqlite": OnSqlite()}

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


def claim_job(
    connection: sa.Connection, worker_id: str, *, lease_s: float, hold_back_s: float, job_id: str | None = None
) -> Claimed | None:
    """Takes one job (`job_id`: that one) for the worker: attempt and epoch grow, GPUs are leased, the event is written.

    None where nothing fits, the worker is not active, or its pool is full.
    """
    engine = _ENGINES[connection.dialect.name]
    room = _find_room(connection, worker_id)
    if room is None:
        return None
    worker, token = room.worker, secrets.token_hex(16)
    values = {
        "of_worker": worker_id,
        "of_pool": worker["pool"],
        "num_cpus": worker["cpus"],
        "num_gpus": len(worker["gpus"]),
        "free_gpus": len(room.free_gpus),
        "a_backend": worker["backends"][0],
        "other_backend": worker["backends"][-1],
        "lease_s": lease_s,
        "hold_back_s": hold_back_s,
        **({} if job_id is None else {"job": job_id}),
    }
    told = {"host": worker["host"], "boot_id": worker["boot_id"], "token": token, "actor": f"worker:{worker_id}"}
    row = engine.take(connection, values, told)
    if row is None:
        return None
    claimed = Claimed(row, worker_id, token, room.free_gpus, connection.dialect.name)
    if room.free_gpus:
        lease = claimed.lease()
        leases = [{"gpu_uuid": gpu, "job_id": lease.job_id, "attempt": lease.attempt} for gpu in lease.gpus]
        if leases:
            connection.execute(_INSERT_GPUS, leases)
    return claimed


@dataclass(frozen=True)
class Claimed:
    """A job that was taken, as its row. What makes a lease of it may wait until the transaction has ended."""

    row: tuple[Any, ...]
    worker_id: str
    token: str
    free_gpus: tuple[str, ...]
    dialect: str

    def lease(self) -> Lease:
        job = job_of(_ENGINES[self.dialect].columns(self.row))
        gpus = self.free_gpus[: job.gpus] if job.backend == "process" else ()
        return Lease(job.id, self.worker_id, job.lease_epoch, job.attempt, self.token, gpus, job)


def _find_room(connection: sa.Connection, worker_id: str) -> Room | None:
    """None unless the worker is active and its pool takes another job.

    The pool is locked where claims in it must not cross: it has a capacity, or GPUs are given out.
    """
    worker = _ENGINES[connection.dialect.name].read_worker(connection, worker_id)
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
