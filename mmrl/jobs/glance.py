"""What is going on, in few queries whatever the history: counts, open failures, best checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.index_reads import read_checkpoints
from mmrl.jobs.records import CheckpointRow, Job
from mmrl.jobs.rows import JOB_COLUMNS, read_jobs
from mmrl.jobs.states import JobState

_RECENT_CHECKPOINTS = 200


@dataclass(frozen=True)
class BestCheckpoint:
    """The best checkpoint of a job by the metric that its config names; value is None where no checkpoint has it."""

    job: Job
    checkpoint: CheckpointRow
    metric: str | None
    value: float | None


def state_counts(database: Database) -> dict[JobState, int]:
    """How many jobs there are in each state; states without any are left out."""
    table = tables.jobs
    query = sa.select(table.c.state, sa.func.count()).group_by(table.c.state)
    with database.reading() as connection:
        return {JobState(state): count for state, count in connection.execute(query)}


def open_failures(database: Database, *, within_s: float, limit: int) -> tuple[list[Job], int]:
    """The jobs that failed last and that nobody has resumed or tried again since, and how many there are."""
    table, child = tables.jobs, tables.jobs.alias("child")
    has_child = sa.exists().where(child.c.parent_job_id == table.c.id)
    is_open = sa.and_(table.c.state == JobState.FAILED.value, table.c.finished_at > NOW - within_s, ~has_child)
    query = sa.select(*JOB_COLUMNS).where(is_open).order_by(table.c.finished_at.desc()).limit(limit)
    with database.reading() as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(table).where(is_open)).scalar_one()
        return read_jobs(connection, connection.execute(query)), int(count)


def best_checkpoints(database: Database, *, limit: int) -> list[BestCheckpoint]:
    """Of the jobs that wrote a checkpoint last, the newest first: each one's best, else its last."""
    table, jobs = tables.checkpoints, tables.jobs
    recent = sa.select(table.c.job_id).where(table.c.state == "complete").order_by(table.c.id.desc())
    with database.reading() as connection:
        ids = list(dict.fromkeys(connection.execute(recent.limit(_RECENT_CHECKPOINTS)).scalars()))[:limit]
        rows = connection.execute(sa.select(*JOB_COLUMNS).where(jobs.c.id.in_(ids)))
        by_id = {job.id: job for job in read_jobs(connection, rows)}
        found = [_best(by_id[job_id], read_checkpoints(connection, job_id)) for job_id in ids if job_id in by_id]
    return [best for best in found if best is not None]


def best_of(checkpoints: Iterable[CheckpointRow], metric: str, mode: str) -> CheckpointRow | None:
    """The one with the best value of a metric, the earlier of equals, as a run keeps it; None where none has
    it. mode: max or min."""
    sign = 1 if mode == "max" else -1
    having = [row for row in checkpoints if isinstance(row.metrics.get(metric), int | float)]
    return max(having, key=lambda row: (sign * row.metrics[metric], -row.step), default=None)


def _best(job: Job, checkpoints: list[CheckpointRow]) -> BestCheckpoint | None:
    if not checkpoints:
        return None
    settings: Any = job.config.get("checkpoint") or {}
    metric = settings.get("best")
    best = best_of(checkpoints, metric, settings.get("best_mode", "max")) if metric else None
    if best is None:
        return BestCheckpoint(job, checkpoints[-1], metric, None)
    return BestCheckpoint(job, best, metric, float(best.metrics[metric]))
