"""The one way in which a job changes its state: guarded, written down as an event, with all that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.states import HELD, TERMINAL, Desired, JobState, sources

STATE_CHANNEL = "job_state"
"""The channel of the outbox that gets every change of state."""


@dataclass(frozen=True)
class Guard:
    """Whose the job must be: this worker's, under this epoch."""

    worker_id: str
    lease_epoch: int


@dataclass(frozen=True)
class Standing:
    """What decides whether a job may change, as read under its row's lock."""

    state: JobState
    desired: Desired
    attempt: int
    lease_epoch: int
    worker_id: str | None


def lock_job(connection: sa.Connection, job_id: str) -> Standing | None:
    """The job's standing, its row locked until the transaction ends; None where there is no such job."""
    table = tables.jobs
    columns = (table.c.state, table.c.desired, table.c.attempt, table.c.lease_epoch, table.c.worker_id)
    row = connection.execute(sa.select(*columns).where(table.c.id == job_id).with_for_update()).first()
    if row is None:
        return None
    return Standing(JobState(row.state), Desired(row.desired), row.attempt, row.lease_epoch, row.worker_id)


def change_state(
    connection: sa.Connection,
    clock: sa.ColumnElement[float],
    job_id: str,
    to: JobState,
    *,
    cause: str,
    actor: str,
    guard: Guard | None = None,
    values: Mapping[str, Any] | None = None,
    payload: Mapping[str, Any] | None = None,
) -> JobState | None:
    """Moves a job to `to` if TRANSITIONS and the guard allow it; None, and nothing written, if they do not.

    A job that comes back to the queue while somebody wants it cancelled or paused goes on to that state at once.
    Returns the state that the job has in the end. values: other columns to set. payload: kept with the event.
    """
    standing = lock_job(connection, job_id)
    if standing is None or standing.state not in sources(to, cause) or not _is_met(guard, standing):
        return None
    changes = {"state": to.value, **_follow(to, standing, clock), **(values or {})}
    table = tables.jobs
    update = table.update().where(
        table.c.id == job_id, table.c.state == standing.state.value, table.c.lease_epoch == standing.lease_epoch
    )
    if connection.execute(update.values(changes)).rowcount != 1:
        return None
    attempt = changes.get("attempt", standing.attempt)
    add_event(connection, clock, job_id, attempt, cause, actor, (standing.state, to), payload)
    if standing.state in HELD | {JobState.LOST} and to not in HELD | {JobState.LOST}:
        _end_attempt(connection, clock, job_id, standing.attempt, cause, changes.get("exit_code"))
    if to in TERMINAL:
        _tell_dependents(connection, clock, job_id, to)
    if to is JobState.QUEUED and changes.get("desired", standing.desired) != Desired.RUN:
        return _obey(connection, clock, job_id, standing.desired, actor)
    return to


def add_event(
    connection: sa.Connection,
    clock: sa.ColumnElement[float],
    job_id: str,
    attempt: int,
    cause: str,
    actor: str,
    change: tuple[JobState, JobState] | None = None,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """Appends to the job's history; a change of state goes to the outbox too."""
    row = {
        "job_id": job_id,
        "attempt": attempt,
        "at": clock,
        "from_state": change[0].value if change else None,
        "to_state": change[1].value if change else None,
        "cause": cause,
        "actor": actor,
        "payload": dict(payload or {}),
    }
    event_id = connection.execute(tables.job_events.insert().values(row).returning(tables.job_events.c.id)).scalar_one()
    if change:
        message = {"event_id": event_id, "channel": STATE_CHANNEL, "tries": 0}
        connection.execute(tables.outbox.insert().values(message))


def _is_met(guard: Guard | None, standing: Standing) -> bool:
    return guard is None or (guard.worker_id, guard.lease_epoch) == (standing.worker_id, standing.lease_epoch)


def _follow(to: JobState, standing: Standing, clock: sa.ColumnElement[float]) -> dict[str, Any]:
    """The columns that a state brings with it."""
    if to in TERMINAL:
        return {"finished_at": clock, "lease_expires_at": None}
    if to in (JobState.QUEUED, JobState.PAUSED):
        queued = {"queued_at": clock} if to is JobState.QUEUED else {}
        return {"worker_id": None, "lease_expires_at": None, **queued}
    return {"lease_expires_at": None} if to is JobState.LOST else {}


def _end_attempt(
    connection: sa.Connection,
    clock: sa.ColumnElement[float],
    job_id: str,
    attempt: int,
    reason: str,
    exit_code: int | None,
) -> None:
    table = tables.attempts
    ended = table.update().where(table.c.job_id == job_id, table.c.attempt == attempt, table.c.ended_at.is_(None))
    connection.execute(ended.values(ended_at=clock, end_reason=reason, exit_code=exit_code))


def _tell_dependents(connection: sa.Connection, clock: sa.ColumnElement[float], job_id: str, end: JobState) -> None:
    """Jobs that wait for this one come nearer to their start, or are cancelled, for it can come no more."""
    jobs, waits = tables.jobs, tables.job_dependencies
    ids = connection.execute(
        sa.select(waits.c.job_id).where(waits.c.depends_on == job_id).order_by(waits.c.job_id)
    ).scalars()
    for dependent in list(ids):
        if end is JobState.SUCCEEDED:
            fewer = jobs.update().where(jobs.c.id == dependent)
            connection.execute(fewer.values(num_waited_for=jobs.c.num_waited_for - 1))
            continue
        change_state(
            connection,
            clock,
            dependent,
            JobState.CANCELLED,
            cause="dependency",
            actor="system",
            values={
                "error_class": "dependency",
                "error_message": f"job {job_id}, which it waits for, has {_ENDS[end]}",
            },
            payload={"depends_on": job_id},
        )


_ENDS = {JobState.FAILED: "failed", JobState.CANCELLED: "been cancelled"}


def _obey(
    connection: sa.Connection, clock: sa.ColumnElement[float], job_id: str, desired: Desired, actor: str
) -> JobState | None:
    to, cause = (JobState.PAUSED, "pause") if desired is Desired.PAUSE else (JobState.CANCELLED, "cancel")
    return change_state(connection, clock, job_id, to, cause=cause, actor=actor)
