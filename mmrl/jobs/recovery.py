"""How jobs whose worker went away come back: found, adopted where the run lives, queued again where it is dead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.index import RunIndex
from mmrl.jobs.records import Attempt, Job, Lease
from mmrl.jobs.retry import Failure, retry_delay
from mmrl.jobs.rows import ATTEMPT_COLUMNS, JOB_COLUMNS, read_jobs, to_attempt
from mmrl.jobs.states import HELD, Desired, JobState
from mmrl.jobs.sweeping import lose_expired
from mmrl.jobs.transitions import Guard, change_state, lock_job
from mmrl.runs.inert import inert

_HELD = [state.value for state in HELD]
_DUTIES = tables.duties
_KNOWN_DUTY = sa.select(_DUTIES.c.name).where(_DUTIES.c.name == bindparam("duty"))
_TAKE_DUTY = (
    _DUTIES.update()
    .where(_DUTIES.c.name == bindparam("duty"), _DUTIES.c.due_at <= NOW)
    .values(due_at=NOW + bindparam("every_s", type_=sa.Double))
)


class Recovery(RunIndex):
    """What a worker does about jobs that are lost."""

    def __init__(self, database: Database, worker_id: str) -> None:
        super().__init__(database)
        self.worker_id = worker_id

    def reap(self) -> list[Job]:
        """Declares lost what no worker has beaten for within its lease; one worker at a time looks.

        Gives the jobs that became lost by this call. Whether their runs still live is for `adopt` and `requeue`.
        """
        table = tables.jobs
        with self.database.transaction(durable=False) as connection:
            if not self._is_due(connection, "reap", self.database.settings.lease_s / 4):
                return []
            lost = lose_expired(connection, actor=self._actor)
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

    def standing(self, job_id: str) -> tuple[JobState, int] | None:
        """State and attempt of any job; None for one that this database does not know."""
        table = tables.jobs
        with self.database.reading() as connection:
            row = connection.execute(sa.select(table.c.state, table.c.attempt).where(table.c.id == job_id)).first()
        return None if row is None else (JobState(row.state), row.attempt)

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
            free = table.update().where(
                table.c.job_id == job.id, table.c.attempt == job.attempt, table.c.released_at.is_(None)
            )
            connection.execute(free.values(released_at=NOW))
            reached = self._end(connection, job.id, job.attempt, failure, guard=None)
        assert reached is not None
        return reached

    def free_stray_gpus(self, gpus: Sequence[str]) -> int:
        """Gives back those of the GPUs whose attempt nobody holds any more, as one of a job that was cancelled, or
        resumed elsewhere, while it was lost. The
        caller has proved that nothing is on them. Gives their number."""
        table, jobs = tables.gpu_leases, tables.jobs
        is_used = (
            sa.select(jobs.c.id)
            .where(
                jobs.c.id == table.c.job_id,
                jobs.c.attempt == table.c.attempt,
                jobs.c.state.in_([*_HELD, JobState.LOST.value]),
            )
            .exists()
        )
        with self.database.transaction(durable=False) as connection:
            stray = table.update().where(table.c.gpu_uuid.in_(gpus), table.c.released_at.is_(None), sa.not_(is_used))
            return int(connection.execute(stray.values(released_at=NOW)).rowcount)

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
            "error_message": inert(failure.message),
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
        values = {"duty": name, "every_s": every_s}
        if connection.execute(_TAKE_DUTY, values).rowcount == 1:
            return True
        if connection.execute(_KNOWN_DUTY, {"duty": name}).first() is not None:
            return False
        first = self._insert(_DUTIES).values(name=name, due_at=NOW + every_s).on_conflict_do_nothing()
        return connection.execute(first.returning(_DUTIES.c.name)).first() is not None


def _last_class(connection: sa.Connection, job_id: str, attempt: int) -> str | None:
    """The error class with which the attempt before went back to the queue."""
    table = tables.job_events
    query = sa.select(table.c.payload).where(
        table.c.job_id == job_id, table.c.attempt == attempt - 1, table.c.cause == "retry"
    )
    payload = connection.execute(query.order_by(table.c.id.desc()).limit(1)).scalar()
    return payload.get("error_class") if payload else None
