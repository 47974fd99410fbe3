"""What can be read about jobs. `Jobs` adds what changes them."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.begun import may_have_begun
from mmrl.jobs.database import Database
from mmrl.jobs.fetching import Fetch, read_fetches
from mmrl.jobs.finding import find_job
from mmrl.jobs.index_reads import read_checkpoints, read_shards
from mmrl.jobs.lineage import ancestors_of, children_of
from mmrl.jobs.metric_reads import last_values, metric_keys, read_metrics, recent_values
from mmrl.jobs.pending import pending_reason
from mmrl.jobs.records import Attempt, CheckpointRow, GpuUse, Job, JobEvent, MetricPoint, PendingReason, ShardRow
from mmrl.jobs.rows import ATTEMPT_COLUMNS, JOB_COLUMNS, read_jobs, some_time, to_attempt, to_event, to_time
from mmrl.jobs.searching import JobChoices, JobFilter, choices, count_jobs, search_jobs
from mmrl.jobs.states import JobState


class JobReads:
    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, ref: str) -> Job:
        """By id, by a part of it that is unique (its beginning or its end, 4 characters or more), or the newest of a
        name. Raises NotFoundError with the nearest names."""
        with self.database.reading() as connection:
            return self._read(connection, find_job(connection, ref))

    def why_pending(self, job: Job | str) -> PendingReason:
        """Its place in the queue and what is missing; code `not_queued` for a job that does not wait."""
        with self.database.reading() as connection:
            ref = job if isinstance(job, str) else job.id
            current = self._read(connection, find_job(connection, ref))
            return pending_reason(connection, self.database, current)

    def fetches(self, found: Iterable[Job]) -> dict[str, Fetch]:
        """job id -> what it fetches before it can start, of those that do so now."""
        starting = [job.id for job in found if job.state is JobState.STARTING]
        with self.database.reading() as connection:
            return read_fetches(connection, starting)

    def events(self, job_id: str, after: int = 0) -> list[JobEvent]:
        """Its history, oldest first. after: only events with a greater id."""
        table = tables.job_events
        query = sa.select(table).where(table.c.job_id == job_id, table.c.id > after).order_by(table.c.id)
        with self.database.reading() as connection:
            return [to_event(row) for row in connection.execute(query)]

    def recent_events(self, job_id: str, limit: int) -> list[JobEvent]:
        """The last so many lines of its history, oldest first."""
        table = tables.job_events
        query = sa.select(table).where(table.c.job_id == job_id).order_by(table.c.id.desc()).limit(limit)
        with self.database.reading() as connection:
            return [to_event(row) for row in connection.execute(query)][::-1]

    def search(
        self, wanted: JobFilter, *, limit: int, before: str | None = None, after: str | None = None
    ) -> list[Job]:
        """A page of the jobs that fit, the newest first. before, after: only those older, or newer, than that id."""
        with self.database.reading() as connection:
            return search_jobs(connection, self.database, wanted, limit=limit, before=before, after=after)

    def count(self, wanted: JobFilter) -> int:
        """How many jobs fit."""
        with self.database.reading() as connection:
            return count_jobs(connection, self.database, wanted)

    def choices(self) -> JobChoices:
        """Kinds, pools, owners and tags that jobs have."""
        with self.database.reading() as connection:
            return choices(connection)

    def attempts(self, job_id: str) -> list[Attempt]:
        """Its starts, oldest first."""
        table = tables.attempts
        query = sa.select(*ATTEMPT_COLUMNS).where(table.c.job_id == job_id).order_by(table.c.attempt)
        with self.database.reading() as connection:
            return [to_attempt(row) for row in connection.execute(query)]

    def may_have_begun(self, job_id: str) -> bool:
        """False where none of its attempts ever got to a process, so that it has no logs anywhere."""
        with self.database.reading() as connection:
            return may_have_begun(connection, job_id)

    def gpus(self, job_id: str) -> list[GpuUse]:
        """The GPUs that its attempts were given, in the order in which they got them."""
        table = tables.gpu_leases
        query = sa.select(table).where(table.c.job_id == job_id).order_by(table.c.id)
        with self.database.reading() as connection:
            return [
                GpuUse(row.gpu_uuid, row.attempt, some_time(row.acquired_at), to_time(row.released_at))
                for row in connection.execute(query)
            ]

    def lineage(self, job_id: str) -> list[Job]:
        """The jobs from which this one stems, the first of all first, and itself last."""
        with self.database.reading() as connection:
            return [self._read(connection, one) for one in ancestors_of(connection, job_id)]

    def children(self, job_id: str) -> list[Job]:
        """The jobs that were made of this one, oldest first."""
        with self.database.reading() as connection:
            return [self._read(connection, one) for one in children_of(connection, job_id)]

    def metrics(
        self, job_id: str, keys: Iterable[str] | None = None, max_points: int = 200
    ) -> dict[str, list[MetricPoint]]:
        """Each metric in at most `max_points` points, see `metric_reads`."""
        with self.database.reading() as connection:
            return read_metrics(connection, job_id, keys, max_points)

    def metric_keys(self, job_id: str) -> list[str]:
        with self.database.reading() as connection:
            return metric_keys(connection, job_id)

    def last_values(self, job_id: str) -> dict[str, MetricPoint]:
        """The last value of each metric."""
        with self.database.reading() as connection:
            return last_values(connection, job_id)

    def recent_values(self, job_id: str, key: str, limit: int) -> list[MetricPoint]:
        """The last so many values of a metric, by step."""
        with self.database.reading() as connection:
            return recent_values(connection, job_id, key, limit)

    def checkpoints(self, job_id: str) -> list[CheckpointRow]:
        """Complete checkpoints by step."""
        with self.database.reading() as connection:
            return read_checkpoints(connection, job_id)

    def shards(self, job_id: str) -> list[ShardRow]:
        """Shards of samples by split and step."""
        with self.database.reading() as connection:
            return read_shards(connection, job_id)

    def _read(self, connection: sa.Connection, job_id: str) -> Job:
        table = tables.jobs
        return read_jobs(connection, connection.execute(sa.select(*JOB_COLUMNS).where(table.c.id == job_id)))[0]
