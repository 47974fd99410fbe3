"""What a job that is starting still fetches. Its worker writes into the history when it begins to; it is over once the
attempt has a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.rows import some_time
from mmrl.jobs.states import JobState

FETCHING = "fetching"
"""The cause of the event; its payload's `message` says what is fetched and from where."""


@dataclass(frozen=True)
class Fetch:
    """message: what comes from where, such as `fetches the last checkpoint of job … from s3://…`."""

    since: datetime
    message: str


def read_fetches(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, Fetch]:
    """job id -> what it fetches now, of those that do."""
    if not job_ids:
        return {}
    jobs, attempts, events = tables.jobs, tables.attempts, tables.job_events
    query = (
        sa.select(events.c.job_id, events.c.at, events.c.payload)
        .join_from(jobs, attempts, sa.and_(attempts.c.job_id == jobs.c.id, attempts.c.attempt == jobs.c.attempt))
        .join(events, sa.and_(events.c.job_id == jobs.c.id, events.c.attempt == jobs.c.attempt))
        .where(
            jobs.c.id.in_(job_ids),
            jobs.c.state == JobState.STARTING.value,
            attempts.c.log_uri.is_(None),
            events.c.cause == FETCHING,
        )
        .order_by(events.c.id)
    )
    return {
        row.job_id: Fetch(some_time(row.at), str(row.payload.get("message", ""))) for row in connection.execute(query)
    }
