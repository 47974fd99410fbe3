"""Whether anything of a job ever began, told by its record alone: a run directory that is not here may be elsewhere, or
never have been made."""

from __future__ import annotations

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.worker.processes import host_name


def may_have_begun(connection: sa.Connection, job_id: str) -> bool:
    """Whether a process of any of the job's attempts was started, as far as anybody can know.

    A worker writes down where the logs are once it has a process. Where it went away before that, only its own machine
    tells: the run directory is made there before anything starts.
    """
    attempts, events = tables.attempts, tables.job_events
    told = (
        sa.select(events.c.id)
        .where(
            events.c.job_id == attempts.c.job_id,
            events.c.attempt == attempts.c.attempt,
            sa.or_(
                events.c.cause == "started",
                sa.and_(events.c.cause == "lease_expired", attempts.c.host.is_distinct_from(host_name())),
            ),
        )
        .exists()
    )
    has_begun = sa.or_(attempts.c.log_uri.is_not(None), told)
    query = sa.select(attempts.c.attempt).where(attempts.c.job_id == job_id, has_begun)
    return connection.execute(query.limit(1)).first() is not None
