"""Pools and the workers in them."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.errors import NotFoundError
from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.records import Pool, QueueFigure, WorkerRecord, WorkerState
from mmrl.jobs.rows import some_time
from mmrl.jobs.states import HELD, TERMINAL, JobState

_HELD = [state.value for state in HELD]


def ensure_pool(connection: sa.Connection, name: str) -> None:
    """A pool comes to be when a worker joins it or a job is submitted to it."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(tables.pools).values(name=name).on_conflict_do_nothing())


class Fleet:
    """The workers and pools, as people see and set them."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def workers(self, *, include_dead: bool = False) -> list[WorkerRecord]:
        """The workers by pool and age; dead ones, and those that have not beaten for a lease, only if asked for."""
        with self.database.reading() as connection:
            found = worker_records(connection, self.database)
        return [worker for worker in found if include_dead or worker.is_alive]

    def drain(self, worker_id: str) -> None:
        """The worker finishes or hands over what it has and takes nothing more; it learns so at its next beat."""
        self._set_state(worker_id, "draining")

    def bury(self, worker_id: str) -> None:
        """Says that a worker is gone for good."""
        self._set_state(worker_id, "dead")

    def set_capacity(self, pool: str, capacity: int | None) -> None:
        """Most jobs at once in a pool; None is as many as its workers hold."""
        with self.database.transaction() as connection:
            ensure_pool(connection, pool)
            table = tables.pools
            connection.execute(table.update().where(table.c.name == pool).values(capacity=capacity))

    def gpu_leases(self) -> dict[str, str]:
        """The GPUs that are given to a job: UUID -> job id."""
        table = tables.gpu_leases
        query = sa.select(table.c.gpu_uuid, table.c.job_id).where(table.c.released_at.is_(None))
        with self.database.reading() as connection:
            return {row.gpu_uuid: row.job_id for row in connection.execute(query)}

    def queue(self) -> list[QueueFigure]:
        """How many jobs of each pool are in each state that is not an end, and since when the oldest waits."""
        jobs = tables.jobs
        oldest = sa.func.max(NOW - jobs.c.queued_at)
        query = sa.select(jobs.c.pool, jobs.c.state, sa.func.count().label("num"), oldest.label("oldest_s"))
        is_open = jobs.c.state.in_([state.value for state in JobState if state not in TERMINAL])
        with self.database.reading() as connection:
            rows = connection.execute(query.where(is_open).group_by(jobs.c.pool, jobs.c.state)).all()
        return [
            QueueFigure(row.pool, JobState(row.state), row.num, None if row.oldest_s is None else float(row.oldest_s))
            for row in rows
        ]

    def pools(self) -> list[Pool]:
        """Every pool with what its living workers have and what waits in it."""
        jobs, table = tables.jobs, tables.pools
        with self.database.reading() as connection:
            alive = [worker for worker in worker_records(connection, self.database) if worker.is_alive]
            states = [JobState.QUEUED.value, *_HELD]
            slots = sa.func.sum(sa.case((jobs.c.backend == "ray", 1), else_=jobs.c.cpus))
            counts = sa.select(jobs.c.pool, jobs.c.state, sa.func.count().label("num"), slots.label("cpus"))
            counted = connection.execute(
                counts.where(jobs.c.state.in_(states)).group_by(jobs.c.pool, jobs.c.state)
            ).all()
            leases = tables.gpu_leases
            taken = set(
                connection.execute(sa.select(leases.c.gpu_uuid).where(leases.c.released_at.is_(None))).scalars()
            )
            rows = connection.execute(sa.select(table).order_by(table.c.name)).all()
        pools = []
        for row in rows:
            own = [worker for worker in alive if worker.pool == row.name and worker.state == "active"]
            gpus = {gpu for worker in own for gpu in worker.gpus}
            cpus = sum(worker.cpus for worker in own)
            mine = [count for count in counted if count.pool == row.name]
            held = [count for count in mine if count.state != JobState.QUEUED.value]
            pools.append(
                Pool(
                    name=row.name,
                    capacity=row.capacity,
                    num_workers=len(own),
                    cpus=cpus,
                    free_cpus=max(0, cpus - int(sum(count.cpus for count in held))),
                    gpus=len(gpus),
                    free_gpus=len(gpus - taken),
                    num_queued=sum(count.num for count in mine if count.state == JobState.QUEUED.value),
                    num_held=sum(count.num for count in held),
                )
            )
        return pools

    def _set_state(self, worker_id: str, state: WorkerState) -> None:
        table = tables.workers
        with self.database.transaction() as connection:
            found = connection.execute(table.update().where(table.c.id == worker_id).values(state=state)).rowcount
        if not found:
            raise NotFoundError(f"no worker {worker_id!r}; `mmrl worker list` shows all")


def worker_records(
    connection: sa.Connection, database: Database, *, ids: Sequence[str] | None = None
) -> list[WorkerRecord]:
    """Workers with the jobs that they hold, oldest first in each pool."""
    table, jobs = tables.workers, tables.jobs
    alive = sa.and_(table.c.state != "dead", table.c.heartbeat_at + database.settings.lease_s >= NOW)
    query = sa.select(table, alive.label("is_alive")).order_by(table.c.pool, table.c.id)
    held = sa.select(jobs.c.worker_id, jobs.c.id).where(jobs.c.state.in_(_HELD)).order_by(jobs.c.id)
    if ids is not None:
        query, held = query.where(table.c.id.in_(ids)), held.where(jobs.c.worker_id.in_(ids))
    by_worker: dict[str, list[str]] = {}
    for row in connection.execute(held):
        by_worker.setdefault(row.worker_id, []).append(row.id)
    records = []
    for row in connection.execute(query):
        values = dict(row._mapping) | {
            "gpus": tuple(row.gpus),
            "backends": tuple(row.backends),
            "registered_at": some_time(row.registered_at),
            "heartbeat_at": some_time(row.heartbeat_at),
            "is_alive": bool(row.is_alive),
            "job_ids": tuple(by_worker.get(row.id, ())),
        }
        records.append(WorkerRecord(**values))
    return records
