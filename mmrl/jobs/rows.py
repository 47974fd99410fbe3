"""From rows of the tables to the records that leave this package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.records import Attempt, CheckpointRow, Job, JobEvent, ShardRow
from mmrl.jobs.states import Desired, JobState

_TIMES = {"lease_expires_at", "available_at", "created_at", "queued_at", "started_at", "finished_at", "ended_at"}
_JOB_FIELDS = [field.name for field in fields(Job) if field.name != "after"]
_JOB_TIMES = [name for name in _JOB_FIELDS if name in _TIMES]
JOB_COLUMNS = [tables.jobs.c[name] for name in _JOB_FIELDS]
ATTEMPT_COLUMNS = [tables.attempts.c[field.name] for field in fields(Attempt)]


def to_time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def some_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def to_seconds(time: datetime | None) -> float | None:
    """Raises ValueError for a time without a zone, which could mean any."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"the time {time.isoformat()} has no zone; give an aware one, such as datetime.now(UTC)")
    return time.timestamp()


def read_jobs(connection: sa.Connection, rows: Iterable[Any]) -> list[Job]:
    """Jobs from rows that have JOB_COLUMNS, with what they wait for."""
    found = list(rows)
    after = _dependencies(connection, [row.id for row in found])
    return [job_of(row, after.get(row.id, ())) for row in found]


def job_of(row: Any, after: tuple[str, ...] = ()) -> Job:
    """A job from its columns in the order of JOB_COLUMNS."""
    values: dict[str, Any] = dict(zip(_JOB_FIELDS, row, strict=True))
    for name in _JOB_TIMES:
        if values[name] is not None:
            values[name] = datetime.fromtimestamp(values[name], UTC)
    values["state"], values["desired"] = JobState(values["state"]), Desired(values["desired"])
    values["tags"], values["after"] = tuple(values["tags"]), after
    return Job(**values)


def to_attempt(row: Any) -> Attempt:
    values: dict[str, Any] = {key: to_time(value) if key in _TIMES else value for key, value in row._mapping.items()}
    return Attempt(**values)


def to_event(row: Any) -> JobEvent:
    return JobEvent(
        id=row.id,
        job_id=row.job_id,
        attempt=row.attempt,
        at=some_time(row.at),
        from_state=JobState(row.from_state) if row.from_state else None,
        to_state=JobState(row.to_state) if row.to_state else None,
        cause=row.cause,
        actor=row.actor,
        payload=row.payload,
    )


def to_checkpoint(row: Any) -> CheckpointRow:
    return CheckpointRow(
        step=row.step,
        uri=row.uri,
        num_bytes=row.bytes,
        manifest_sha256=row.manifest_sha256,
        state=row.state,
        metrics=row.metrics,
        attempt=row.attempt,
        id=row.id,
        created_at=to_time(row.created_at),
    )


def to_shard(row: Any) -> ShardRow:
    return ShardRow(row.split, row.step_lo, row.step_hi, row.uri, row.rows, row.bytes, row.sha256, row.attempt)


def _dependencies(connection: sa.Connection, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    table = tables.job_dependencies
    found: dict[str, tuple[str, ...]] = {}
    if ids:
        query = sa.select(table).where(table.c.job_id.in_(ids)).order_by(table.c.job_id, table.c.depends_on)
        for row in connection.execute(query):
            found[row.job_id] = (*found.get(row.job_id, ()), row.depends_on)
    return found
