"""Parents and children: what a job stems from, and how one is made of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.records import Job, NewJob
from mmrl.jobs.rows import JOB_COLUMNS, read_jobs
from mmrl.jobs.states import TERMINAL, JobState
from mmrl.jobs.submitting import enqueue, insert_job
from mmrl.jobs.users import read_user
from mmrl.runs.mirror import is_address


def ancestors_of(connection: sa.Connection, job_id: str) -> list[str]:
    """The ids from the first ancestor down to the job itself."""
    table = tables.jobs
    chain: list[str] = []
    current: str | None = job_id
    while current is not None and current not in chain:
        chain.append(current)
        query = sa.select(table.c.parent_job_id).where(table.c.id == current)
        current = connection.execute(query).scalar_one_or_none()
    return chain[::-1]


def children_of(connection: sa.Connection, job_id: str) -> list[str]:
    table = tables.jobs
    query = sa.select(table.c.id).where(table.c.parent_job_id == job_id).order_by(table.c.id)
    return list(connection.execute(query).scalars())


def active_child(connection: sa.Connection, job_id: str) -> str | None:
    """A child that has not ended, the newest first."""
    table = tables.jobs
    is_over = table.c.state.in_([state.value for state in TERMINAL])
    query = sa.select(table.c.id).where(table.c.parent_job_id == job_id, sa.not_(is_over))
    return connection.execute(query.order_by(table.c.id.desc()).limit(1)).scalar_one_or_none()


def copy_of(
    job: Job,
    *,
    parent_job_id: str,
    resume_checkpoint: str | None,
    after: tuple[str, ...] = (),
    idempotency_key: str | None = None,
) -> NewJob:
    """The same again: config, resources, priority, tags."""
    return NewJob(
        config=job.config,
        name=job.name,
        kind=job.kind,
        pool=job.pool,
        cpus=job.cpus,
        gpus=job.gpus,
        priority=job.priority,
        after=after,
        idempotency_key=idempotency_key,
        max_attempts=job.max_attempts,
        parent_job_id=parent_job_id,
        resume_checkpoint=resume_checkpoint,
        owner=job.owner_id,
        tags=job.tags,
        note=job.note,
        backend=job.backend,
    )


def runs_url_of(job: Job) -> str | None:
    """The address under which a child's run directory lies beside its parent's; None where that is no address."""
    return job.run_dir.rstrip("/").rpartition("/")[0] if is_address(job.run_dir) else None


def checkpoint_address(job: Job, path: str) -> str:
    """Where any machine finds a checkpoint of the job, which its worker knows by the path on its own disk."""
    return f"{job.run_dir.rstrip('/')}/checkpoints/{Path(path).name}" if is_address(job.run_dir) else path


def revive_dependents(
    connection: sa.Connection, database: Database, replaced: Mapping[str, str], *, actor: str
) -> None:
    """Jobs that were cancelled because what they waited for did not succeed come back as children, waiting for its
    replacement; so do those that waited for them. replaced: job id -> id of the job that takes its place."""
    jobs, waits = tables.jobs, tables.job_dependencies
    waiting = sa.select(waits.c.job_id).where(waits.c.depends_on.in_(list(replaced)))
    query = sa.select(*JOB_COLUMNS).where(
        jobs.c.id.in_(waiting), jobs.c.state == JobState.CANCELLED.value, jobs.c.error_class == "dependency"
    )
    new = dict(replaced)
    for job in read_jobs(connection, connection.execute(query.order_by(jobs.c.id))):
        if job.id in new or active_child(connection, job.id) is not None:
            continue
        after = tuple(new.get(other, other) for other in job.after)
        copy = copy_of(job, parent_job_id=job.id, resume_checkpoint=job.resume_checkpoint, after=after)
        owner = read_user(connection, job.owner_id)
        child = insert_job(connection, database, copy, owner, runs_url=runs_url_of(job))
        enqueue(connection, database, child, actor=actor)
        revive_dependents(connection, database, new | {job.id: child}, actor=actor)
        new[job.id] = child
