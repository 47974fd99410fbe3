"""What workers call. Every write is guarded by the job's worker, lease epoch and state; a stale one writes nothing.

lease_epoch fences supervisors: it grows with each claim and each adoption. attempt fences trainers: it grows with each
claim only, so that an adopted trainer stays the owner of its run directory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.beats import extend_leases
from mmrl.jobs.claim_statements import slots
from mmrl.jobs.claims import claim_job
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.field_checks import check_pool
from mmrl.jobs.ids import new_id
from mmrl.jobs.pools import ensure_pool, worker_records
from mmrl.jobs.records import Lease, LeaseView, WorkerInfo, WorkerRecord, WorkerState
from mmrl.jobs.recovery import Recovery
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import HELD, Desired, JobState
from mmrl.jobs.transitions import add_event, change_state
from mmrl.jobs.watch import LATE_BEATS, Watch

_ATTEMPTS, _GPUS = tables.attempts, tables.gpu_leases
_EPOCH = sa.select(tables.jobs.c.lease_epoch).where(tables.jobs.c.id == bindparam("of_job")).scalar_subquery()
_RELEASE = (
    _GPUS.update()
    .where(
        _GPUS.c.job_id == bindparam("of_job"),
        _GPUS.c.attempt == bindparam("of_attempt"),
        _GPUS.c.released_at.is_(None),
        bindparam("of_epoch", type_=sa.Integer) == _EPOCH,
    )
    .values(released_at=NOW)
)


class Leases(Recovery):
    """One worker's hand on the database; make it, then `register`. What is lost comes back in `Recovery`, and
    the index of run directories is written in `RunIndex`."""

    def __init__(self, database: Database, worker_id: str | None = None) -> None:
        super().__init__(database, worker_id or "")
        self._claiming = threading.Lock()
        self._watch = Watch(database.settings)
        self.worker_state: WorkerState = "active"
        """What the last beat told of the worker; another may have set it to draining, or taken it for dead."""

    def register(self, info: WorkerInfo) -> str:
        """Makes the worker known, with a new id, and active. Raises ConfigError for a pool that cannot be."""
        check_pool(info.pool)
        with self.database.transaction(durable=False) as connection:
            now = self.database.now(connection)
            worker_id = new_id(now)
            ensure_pool(connection, info.pool)
            row = asdict(info) | {
                "id": worker_id,
                "gpus": list(info.gpus),
                "backends": list(info.backends),
                "state": "active",
                "registered_at": now,
                "heartbeat_at": now,
            }
            connection.execute(tables.workers.insert().values(row))
        self.worker_id = worker_id
        self._watch.begin(now)
        return worker_id

    def heartbeat(self) -> WorkerState:
        """Tells that the worker lives; gives the state that it has, which another may have set to draining."""
        table = tables.workers
        with self.database.transaction(durable=False) as connection:
            beat = table.update().where(table.c.id == self.worker_id).values(heartbeat_at=NOW)
            self.worker_state = connection.execute(beat.returning(table.c.state)).scalar_one()
        return self.worker_state

    def set_state(self, state: WorkerState) -> None:
        """active, draining (claims nothing more) or dead (gone for good)."""
        table = tables.workers
        with self.database.transaction(durable=False) as connection:
            connection.execute(table.update().where(table.c.id == self.worker_id).values(state=state))

    def worker(self) -> WorkerRecord:
        with self.database.reading() as connection:
            return worker_records(connection, self.database, ids=[self.worker_id])[0]

    def claim(self, job_id: str | None = None) -> Lease | None:
        """One job that the free CPU slots or GPUs of this worker hold whole; None where there is none.

        job_id: this one and no other.
        """
        with self._claiming:
            return claim_job(self.database, self.worker_id, job_id=job_id)

    def has_work(self, *, pool: str, cpus: int, num_gpus: int, backends: Sequence[str]) -> bool:
        """Whether the pool has a job that so much room holds and that this worker may get: one that is queued and waits
        for no other job (it may wait for its time, as after a failure), one that is lost, or one whose worker has
        missed a beat and may be dead."""
        table, workers = tables.jobs, tables.workers
        is_silent = workers.c.heartbeat_at < NOW - LATE_BEATS * self.database.settings.beat_s
        may_be_lost = sa.select(workers.c.id).where(workers.c.id == table.c.worker_id, is_silent).exists()
        may_come = sa.or_(
            sa.and_(table.c.state == JobState.QUEUED.value, table.c.num_waited_for == 0),
            table.c.state == JobState.LOST.value,
            sa.and_(table.c.state.in_(state.value for state in HELD), may_be_lost),
        )
        could = sa.and_(slots(table) <= cpus, sa.or_(table.c.backend == "ray", table.c.gpus <= num_gpus))
        query = sa.select(table.c.id).where(table.c.pool == pool, table.c.backend.in_(backends), may_come, could)
        with self.database.reading() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def beat(self, leases: Iterable[Lease]) -> dict[str, LeaseView]:
        """Extends all the leases in one statement and tells how each stands. The worker's own beat goes along."""
        with self.database.transaction(durable=False) as connection:
            self.worker_state, at, views = extend_leases(
                connection, self.worker_id, list(leases), lease_s=self.database.settings.lease_s
            )
        self._watch.note(at)
        return views

    def may_judge_others(self) -> bool:
        """Whether the silence of other workers tells that they are gone, see `Watch`."""
        return self._watch.is_long_enough(self.database.now())

    def wishes(self, job_ids: Sequence[str]) -> dict[str, Desired]:
        """What people want of those of the jobs that they want paused, cancelled or killed."""
        if not job_ids:
            return {}
        table = tables.jobs
        wanted = table.c.desired != Desired.RUN.value
        query = sa.select(table.c.id, table.c.desired).where(table.c.id.in_(job_ids), wanted)
        with self.database.reading() as connection:
            return {row.id: Desired(row.desired) for row in connection.execute(query)}

    def move(
        self, lease: Lease, to: JobState, *, cause: str, payload: Mapping[str, Any] | None = None, **fields: Any
    ) -> JobState:
        """A guarded change of state with its event, all or nothing. fields: columns of the job to set with it.

        Returns the state in the end: a job that goes back to the queue while somebody wants it cancelled is cancelled.
        Raises LeaseLostError where the job is not this worker's any more, ValueError for a cause that never does this.
        """
        with self.database.transaction(durable=False) as connection:
            reached = change_state(
                connection,
                lease.job_id,
                to,
                cause=cause,
                actor=self._actor,
                guard=self._guard(lease),
                values=fields,
                payload=payload,
            )
        if reached is None:
            raise self._lost(lease, f"become {to}")
        return reached

    def fail(self, lease: Lease, failure: Failure) -> JobState:
        """Ends an attempt that failed: back to the queue after a wait where the failure is one of the infrastructure
        and starts are left, else failed. The caller has proved that the attempt's processes are gone.
        """
        with self.database.transaction(durable=False) as connection:
            reached = self._end(connection, lease.job_id, lease.attempt, failure, guard=self._guard(lease))
        if reached is None:
            raise self._lost(lease, "fail")
        return reached

    def launched(
        self,
        lease: Lease,
        *,
        external_id: str | None = None,
        host: str | None = None,
        boot_id: str | None = None,
        pid: int | None = None,
        pid_start_time: float | None = None,
        pgid: int | None = None,
        log_uri: str | None = None,
    ) -> None:
        """Writes down how to find the attempt again: before it is started what is known then, after it the rest.

        What is None stays as it is.
        """
        given = {
            "external_id": external_id,
            "host": host,
            "boot_id": boot_id,
            "pid": pid,
            "pid_start_time": pid_start_time,
            "pgid": pgid,
            "log_uri": log_uri,
        }
        values = {name: value for name, value in given.items() if value is not None}
        table = tables.attempts
        with self.database.transaction(durable=False) as connection:
            self._check(connection, lease)
            mine = table.update().where(table.c.job_id == lease.job_id, table.c.attempt == lease.attempt)
            if values:
                connection.execute(mine.values(values))

    def started(self, lease: Lease, *, external_id: str | None = None, **found: Any) -> None:
        """The trainer runs: how to find it, as `launched` takes it, and the state `running`, in one transaction."""
        table = tables.attempts
        values = {name: value for name, value in {"external_id": external_id, **found}.items() if value is not None}
        with self.database.transaction(durable=False) as connection:
            reached = change_state(
                connection,
                lease.job_id,
                JobState.RUNNING,
                cause="started",
                actor=self._actor,
                guard=self._guard(lease),
            )
            if reached is None:
                raise self._lost(lease, "be running")
            mine = table.update().where(table.c.job_id == lease.job_id, table.c.attempt == lease.attempt)
            connection.execute(mine.values(values or {"attempt": lease.attempt}))

    def progress(
        self, lease: Lease, step: int, total_steps: int | None = None, *, first_step: int | None = None
    ) -> None:
        """How far the run is. first_step: the step from which this attempt's loop went on, once it is known."""
        table, attempts = tables.jobs, tables.attempts
        with self.database.transaction(durable=False) as connection:
            self._check(connection, lease)
            values = {"step": step} | ({"total_steps": total_steps} if total_steps is not None else {})
            connection.execute(table.update().where(table.c.id == lease.job_id).values(values))
            if first_step is not None:
                mine = attempts.update().where(attempts.c.job_id == lease.job_id, attempts.c.attempt == lease.attempt)
                connection.execute(mine.values(first_step=first_step))

    def release(self, lease: Lease) -> None:
        """Gives the attempt's GPUs back; the caller has proved that its processes and their memory are gone.

        Does nothing where another worker has adopted the attempt meanwhile.
        """
        values = {"of_job": lease.job_id, "of_attempt": lease.attempt, "of_epoch": lease.lease_epoch}
        with self.database.transaction(durable=False) as connection:
            connection.execute(_RELEASE, values)

    def event(self, lease: Lease, cause: str, payload: Mapping[str, Any] | None = None) -> None:
        """A line in the job's history without a change of state."""
        with self.database.transaction(durable=False) as connection:
            self._check(connection, lease)
            add_event(connection, lease.job_id, lease.attempt, cause, self._actor, payload=payload)
