"""What workers call. Every write is guarded by the job's worker, lease epoch and state; a stale one writes nothing.

lease_epoch fences supervisors: it grows with each claim and each adoption. attempt fences trainers: it grows with each
claim only, so that an adopted trainer stays the owner of its run directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.claims import claim_job, slots
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.ids import new_id
from mmrl.jobs.index import RunIndex
from mmrl.jobs.pools import ensure_pool, worker_records
from mmrl.jobs.records import Attempt, Job, Lease, LeaseView, WorkerInfo, WorkerRecord, WorkerState
from mmrl.jobs.retry import Failure, retry_delay
from mmrl.jobs.rows import ATTEMPT_COLUMNS, JOB_COLUMNS, read_jobs, to_attempt
from mmrl.jobs.states import HELD, TERMINAL, Desired, JobState
from mmrl.jobs.transitions import Guard, add_event, change_state, lock_job

_HELD = [state.value for state in HELD]


class Leases(RunIndex):
    """One worker's hand on the database; make it, then `register`. Index writes are in `RunIndex`."""

    def __init__(self, database: Database, worker_id: str | None = None) -> None:
        super().__init__(database)
        self.worker_id = worker_id or ""
        self.worker_state: WorkerState = "active"
        """What the last beat told of the worker; another may have set it to draining, or taken it for dead."""

    def register(self, info: WorkerInfo) -> str:
        """Makes the worker known, with a new id, and active."""
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
        settings = self.database.settings
        with self.database.transaction(durable=False) as connection:
            return claim_job(
                connection,
                self.worker_id,
                lease_s=settings.lease_s,
                hold_back_s=settings.hold_back_s,
                job_id=job_id,
            )

    def has_work(self, *, pool: str, cpus: int, num_gpus: int) -> bool:
        """Whether a job is queued in the pool that so much room holds and that waits for no other job; it may wait for
        its time, as after a failure."""
        table = tables.jobs
        query = sa.select(table.c.id).where(
            table.c.state == JobState.QUEUED.value, table.c.pool == pool, table.c.num_waited_for == 0
        )
        could = sa.and_(slots(table) <= cpus, sa.or_(table.c.backend == "ray", table.c.gpus <= num_gpus))
        with self.database.reading() as connection:
            return connection.execute(query.where(could).limit(1)).first() is not None

    def beat(self, leases: Iterable[Lease]) -> dict[str, LeaseView]:
        """Extends all the leases in one statement and tells how each stands. The worker's own beat goes along."""
        wanted = {lease.job_id: lease for lease in leases}
        table = tables.jobs
        columns = (table.c.id, table.c.state, table.c.desired, table.c.lease_epoch, table.c.worker_id, table.c.attempt)
        with self.database.transaction(durable=False) as connection:
            workers = tables.workers
            alive = workers.update().where(workers.c.id == self.worker_id).values(heartbeat_at=NOW)
            self.worker_state = connection.execute(alive.returning(workers.c.state)).scalar_one()
            if not wanted:
                return {}
            pairs = [(lease.job_id, lease.lease_epoch) for lease in wanted.values()]
            mine = sa.select(table.c.id).where(
                sa.tuple_(table.c.id, table.c.lease_epoch).in_(sorted(pairs)),
                table.c.worker_id == self.worker_id,
                table.c.state.in_(_HELD),
            )
            locked = mine.order_by(table.c.id).with_for_update()
            extended = table.update().where(table.c.id.in_(locked.scalar_subquery()))
            until = NOW + self.database.settings.lease_s
            held = {
                row.id: row for row in connection.execute(extended.values(lease_expires_at=until).returning(*columns))
            }
            rest = sa.select(*columns).where(table.c.id.in_([job_id for job_id in wanted if job_id not in held]))
            others = {row.id: row for row in connection.execute(rest)} if len(held) < len(wanted) else {}
        return {
            job_id: _view(lease, held.get(job_id) or others.get(job_id), job_id in held)
            for job_id, lease in wanted.items()
        }

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
        table, jobs = tables.gpu_leases, tables.jobs
        with self.database.transaction(durable=False) as connection:
            epoch = sa.select(jobs.c.lease_epoch).where(jobs.c.id == lease.job_id).scalar_subquery()
            mine = table.update().where(
                table.c.job_id == lease.job_id,
                table.c.attempt == lease.attempt,
                table.c.released_at.is_(None),
                epoch == lease.lease_epoch,
            )
            connection.execute(mine.values(released_at=NOW))

    def free_stray_gpus(self, gpus: Sequence[str]) -> int:
        """Gives back those of the GPUs whose job nobody holds any more, as one that was cancelled while lost. The
        caller has proved that nothing is on them. Gives their number."""
        table, jobs = tables.gpu_leases, tables.jobs
        kept = sa.select(jobs.c.id).where(jobs.c.state.in_([*_HELD, JobState.LOST.value]))
        with self.database.transaction(durable=False) as connection:
            stray = table.update().where(
                table.c.gpu_uuid.in_(gpus), table.c.released_at.is_(None), table.c.job_id.not_in(kept)
            )
            return int(connection.execute(stray.values(released_at=NOW)).rowcount)

    def reap(self) -> list[Job]:
        """Declares lost what no worker has beaten for within its lease; one worker at a time looks.

        Gives the jobs that became lost by this call. Whether their runs still live is for `adopt` and `requeue`.
        """
        table = tables.jobs
        with self.database.transaction(durable=False) as connection:
            if not self._is_due(connection, "reap", self.database.settings.lease_s / 4):
                return []
            expired = sa.select(table.c.id).where(table.c.state.in_(_HELD), table.c.lease_expires_at < NOW)
            ids = list(connection.execute(expired.order_by(table.c.id).with_for_update(skip_locked=True)).scalars())
            lost = [
                job_id
                for job_id in ids
                if change_state(connection, job_id, JobState.LOST, cause="lease_expired", actor=self._actor)
            ]
            rows = connection.execute(sa.select(*JOB_COLUMNS).where(table.c.id.in_(lost)).order_by(table.c.id))
            return read_jobs(connection, rows)

    def bury(self, worker_id: str) -> list[str]:
        """Another worker's process is proved gone: it is dead, and what it held is lost now and not when its leases run
        out. Gives the ids of those jobs."""
        table, workers = tables.jobs, tables.workers
        with self.database.transaction(durable=False) as connection:
            connection.execute(workers.update().where(workers.c.id == worker_id).values(state="dead"))
            held = sa.select(table.c.id).where(table.c.worker_id == worker_id, table.c.state.in_(_HELD))
            ids = list(connection.execute(held.order_by(table.c.id).with_for_update()).scalars())
            for job_id in ids:
                change_state(connection, job_id, JobState.LOST, cause="lease_expired", actor=self._actor)
        return ids

    def standing(self, job_id: str) -> tuple[JobState, int] | None:
        """State and attempt of any job; None for one that this database does not know."""
        table = tables.jobs
        with self.database.reading() as connection:
            row = connection.execute(sa.select(table.c.state, table.c.attempt).where(table.c.id == job_id)).first()
        return None if row is None else (JobState(row.state), row.attempt)

    def lost_jobs(self, *, host: str | None = None) -> list[tuple[Job, Attempt]]:
        """Lost jobs with their last attempts, which tell where to look for the run. host: only those of that host."""
        jobs, attempts = tables.jobs, tables.attempts
        joined = sa.and_(attempts.c.job_id == jobs.c.id, attempts.c.attempt == jobs.c.attempt)
        where = [jobs.c.state == JobState.LOST.value]
        if host is not None:
            where.append(attempts.c.host == host)
        with self.database.reading() as connection:
            lost = sa.select(*JOB_COLUMNS).join_from(jobs, attempts, joined).where(*where).order_by(jobs.c.id)
            found = read_jobs(connection, connection.execute(lost))
            query = sa.select(*ATTEMPT_COLUMNS).join_from(jobs, attempts, joined).where(*where).order_by(jobs.c.id)
            return list(zip(found, map(to_attempt, connection.execute(query)), strict=True))

    def adopt(self, job: Job | Lease) -> Lease:
        """Takes over a lost job whose run lives: the epoch grows, the attempt stays.

        job: as it was read or held; if it changed hands since, LeaseLostError is raised.
        """
        job_id = job.id if isinstance(job, Job) else job.job_id
        table, attempts = tables.jobs, tables.attempts
        with self.database.transaction(durable=False) as connection:
            standing = lock_job(connection, job_id)
            if standing is None or (standing.lease_epoch, standing.attempt) != (job.lease_epoch, job.attempt):
                raise self._lost(job, "be adopted")
            values = {
                "worker_id": self.worker_id,
                "lease_epoch": standing.lease_epoch + 1,
                "lease_expires_at": NOW + self.database.settings.lease_s,
            }
            reached = change_state(
                connection, job_id, JobState.RUNNING, cause="adopted", actor=self._actor, values=values
            )
            if reached is None:
                raise self._lost(job, "be adopted")
            key = (attempts.c.job_id == job_id, attempts.c.attempt == standing.attempt)
            connection.execute(attempts.update().where(*key).values(worker_id=self.worker_id))
            token = connection.execute(sa.select(attempts.c.token).where(*key)).scalar_one()
            row = connection.execute(sa.select(*JOB_COLUMNS).where(table.c.id == job_id))
            current = read_jobs(connection, row)[0]
            leases = tables.gpu_leases
            mine = sa.select(leases.c.gpu_uuid).where(
                leases.c.job_id == job_id, leases.c.attempt == standing.attempt, leases.c.released_at.is_(None)
            )
            gpus = tuple(connection.execute(mine.order_by(leases.c.id)).scalars())
        return Lease(job_id, self.worker_id, current.lease_epoch, current.attempt, token, gpus, current)

    def requeue(self, job: Job, failure: Failure) -> JobState:
        """A lost job whose processes are proved gone: its GPUs are free, and it starts again if starts are left.

        A job that was to be cancelled is cancelled. Raises LeaseLostError if it changed hands since it was read.
        """
        with self.database.transaction(durable=False) as connection:
            standing = lock_job(connection, job.id)
            read = (JobState.LOST, job.lease_epoch, job.attempt)
            if standing is None or (standing.state, standing.lease_epoch, standing.attempt) != read:
                raise self._lost(job, "be queued again")
            table = tables.gpu_leases
            free = table.update().where(table.c.job_id == job.id, table.c.released_at.is_(None))
            connection.execute(free.values(released_at=NOW))
            reached = self._end(connection, job.id, job.attempt, failure, guard=None)
        assert reached is not None
        return reached

    def event(self, lease: Lease, cause: str, payload: Mapping[str, Any] | None = None) -> None:
        """A line in the job's history without a change of state."""
        with self.database.transaction(durable=False) as connection:
            self._check(connection, lease)
            add_event(connection, lease.job_id, lease.attempt, cause, self._actor, payload=payload)

    def _end(
        self, connection: sa.Connection, job_id: str, attempt: int, failure: Failure, *, guard: Guard | None
    ) -> JobState | None:
        table = tables.jobs
        standing = lock_job(connection, job_id)
        if standing is None:
            return None
        row = connection.execute(sa.select(table.c.retries, table.c.max_attempts).where(table.c.id == job_id)).one()
        delay = retry_delay(
            failure,
            retries=row.retries,
            max_attempts=row.max_attempts,
            last_class=_last_class(connection, job_id, attempt),
            settings=self.database.settings,
        )
        told: dict[str, Any] = {
            "error_class": failure.error_class,
            "error_message": failure.message,
            "exit_code": failure.exit_code,
        }
        values: dict[str, Any] = dict(told)
        if standing.state is JobState.LOST and standing.desired in (Desired.CANCEL, Desired.KILL):
            to, cause = JobState.CANCELLED, "cancel"
        elif delay is None or standing.state is JobState.STOPPING:
            to, cause = JobState.FAILED, "failed"
        else:
            to, cause = JobState.QUEUED, "retry"
            values |= {"available_at": NOW + delay, "retries": table.c.retries + 1}
            told |= {"retry_in_s": delay}
        return change_state(
            connection, job_id, to, cause=cause, actor=self._actor, guard=guard, values=values, payload=told
        )

    @property
    def _actor(self) -> str:
        return f"worker:{self.worker_id}"

    def _guard(self, lease: Lease) -> Guard:
        return Guard(lease.worker_id, lease.lease_epoch)

    def _is_due(self, connection: sa.Connection, name: str, every_s: float) -> bool:
        """Whether a duty is due; it is then this worker's, until the next time."""
        table = tables.duties
        taken = table.update().where(table.c.name == name, table.c.due_at <= NOW).values(due_at=NOW + every_s)
        if connection.execute(taken).rowcount == 1:
            return True
        if connection.execute(sa.select(table.c.name).where(table.c.name == name)).first() is not None:
            return False
        with connection.begin_nested():
            connection.execute(table.insert().values(name=name, due_at=NOW + every_s))
        return True


def _view(lease: Lease, row: Any, is_held: bool) -> LeaseView:
    if row is None:
        return LeaseView(lease.job_id, Desired.CANCEL, JobState.CANCELLED, lease.lease_epoch, False, True)
    state = JobState(row.state)
    is_same = row.lease_epoch == lease.lease_epoch and state not in TERMINAL
    is_mine = is_held or (is_same and row.worker_id == lease.worker_id and state is JobState.LOST)
    return LeaseView(lease.job_id, Desired(row.desired), state, row.lease_epoch, is_held, not is_mine, row.attempt)


def _last_class(connection: sa.Connection, job_id: str, attempt: int) -> str | None:
    """The error class with which the attempt before went back to the queue."""
    table = tables.job_events
    query = sa.select(table.c.payload).where(
        table.c.job_id == job_id, table.c.attempt == attempt - 1, table.c.cause == "retry"
    )
    payload = connection.execute(query.order_by(table.c.id.desc()).limit(1)).scalar()
    return payload.get("error_class") if payload else None
