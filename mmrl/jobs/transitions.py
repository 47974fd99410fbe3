"""The one way in which a job changes its state: guarded, written down as an event, with all that follows from it.

Statements that run often are built once, since to build one takes longer than to run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.states import HELD, TERMINAL, Desired, JobState, sources

STATE_CHANNEL = "job_state"
"""The channel of the outbox that gets every change of state."""

_JOBS, _WAITS, _ATTEMPTS = tables.jobs, tables.job_dependencies, tables.attempts
_WITH_RUN = HELD | {JobState.LOST}

_LOCK = (
    sa.select(_JOBS.c.state, _JOBS.c.desired, _JOBS.c.attempt, _JOBS.c.lease_epoch, _JOBS.c.worker_id)
    .where(_JOBS.c.id == bindparam("id"))
    .with_for_update()
)
_INSERT_EVENT = tables.job_events.insert().values(at=NOW).returning(tables.job_events.c.id)
_INSERT_MESSAGE = tables.outbox.insert().values(channel=STATE_CHANNEL, tries=0)
_EVENT_FIELDS = ("job_id", "attempt", "from_state", "to_state", "cause", "actor", "payload")
_EVENT_VALUES = {name: bindparam(f"e_{name}", type_=tables.job_events.c[name].type) for name in _EVENT_FIELDS}
_TOLD = tables.job_events.insert().values(at=NOW, **_EVENT_VALUES).returning(tables.job_events.c.id).cte("told")
_INSERT_BOTH = tables.outbox.insert().from_select(
    ["event_id", "channel", "tries"], sa.select(_TOLD.c.id, sa.literal(STATE_CHANNEL), sa.literal(0))
)
"""Event and message in one round trip, which only PostgreSQL can."""
_END_ATTEMPT = (
    _ATTEMPTS.update()
    .where(
        _ATTEMPTS.c.job_id == bindparam("of_job"),
        _ATTEMPTS.c.attempt == bindparam("of_attempt"),
        _ATTEMPTS.c.ended_at.is_(None),
    )
    .values(ended_at=NOW, end_reason=bindparam("reason"), exit_code=bindparam("code"))
)
_DEPENDENTS = sa.select(_WAITS.c.job_id).where(_WAITS.c.depends_on == bindparam("id")).order_by(_WAITS.c.job_id)
_WAIT_FOR_LESS = (
    _JOBS.update().where(_JOBS.c.id == bindparam("dependent")).values(num_waited_for=_JOBS.c.num_waited_for - 1)
)


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
    row = connection.execute(_LOCK, {"id": job_id}).first()
    if row is None:
        return None
    return Standing(JobState(row.state), Desired(row.desired), row.attempt, row.lease_epoch, row.worker_id)


def change_state(
    connection: sa.Connection,
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
    given = dict(values or {})
    if _set_state(connection, job_id, standing, to, given) != 1:
        return None
    add_event(connection, job_id, standing.attempt, cause, actor, (standing.state, to), payload)
    if standing.state in _WITH_RUN and to not in _WITH_RUN:
        _end_attempt(connection, job_id, standing.attempt, cause, given.get("exit_code"))
    if to in TERMINAL:
        _tell_dependents(connection, job_id, to)
    desired = Desired(given.get("desired", standing.desired))
    if to is JobState.QUEUED and desired is not Desired.RUN:
        return _obey(connection, job_id, desired, actor)
    return to


def add_event(
    connection: sa.Connection,
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
        "from_state": change[0].value if change else None,
        "to_state": change[1].value if change else None,
        "cause": cause,
        "actor": actor,
        "payload": dict(payload or {}),
    }
    if change and connection.dialect.name == "postgresql":
        connection.execute(_INSERT_BOTH, {f"e_{name}": value for name, value in row.items()})
        return
    event_id = connection.execute(_INSERT_EVENT, row).scalar_one()
    if change:
        connection.execute(_INSERT_MESSAGE, {"event_id": event_id})


def _is_met(guard: Guard | None, standing: Standing) -> bool:
    return guard is None or (guard.worker_id, guard.lease_epoch) == (standing.worker_id, standing.lease_epoch)


def _set_state(
    connection: sa.Connection, job_id: str, standing: Standing, to: JobState, given: Mapping[str, Any]
) -> int:
    """The guarded update; gives the number of rows that it changed."""
    computed = {name: value for name, value in given.items() if isinstance(value, sa.ClauseElement)}
    plain = {f"new_{name}": value for name, value in given.items() if name not in computed}
    update = _update(to, tuple(sorted(name for name in given if name not in computed)))
    if computed:
        update = update.values(computed)
    key = {"of_job": job_id, "of_state": standing.state.value, "of_epoch": standing.lease_epoch}
    return connection.execute(update, key | plain).rowcount


@cache
def _update(to: JobState, names: tuple[str, ...]) -> sa.Update:
    guarded = _JOBS.update().where(
        _JOBS.c.id == bindparam("of_job"),
        _JOBS.c.state == bindparam("of_state"),
        _JOBS.c.lease_epoch == bindparam("of_epoch"),
    )
    given = {name: bindparam(f"new_{name}", type_=_JOBS.c[name].type) for name in names}
    return guarded.values({"state": to.value, **_follow(to), **given})


def _follow(to: JobState) -> dict[str, Any]:
    """The columns that a state brings with it."""
    if to in TERMINAL:
        return {"finished_at": NOW, "lease_expires_at": None}
    if to in (JobState.QUEUED, JobState.PAUSED):
        queued = {"queued_at": NOW} if to is JobState.QUEUED else {}
        return {"worker_id": None, "lease_expires_at": None, **queued}
    return {"lease_expires_at": None} if to is JobState.LOST else {}


def _end_attempt(connection: sa.Connection, job_id: str, attempt: int, reason: str, exit_code: int | None) -> None:
    ended = {"of_job": job_id, "of_attempt": attempt, "reason": reason, "code": exit_code}
    connection.execute(_END_ATTEMPT, ended)


def _tell_dependents(connection: sa.Connection, job_id: str, end: JobState) -> None:
    """Jobs that wait for this one come nearer to their start, or are cancelled, for it can come no more."""
    for dependent in list(connection.execute(_DEPENDENTS, {"id": job_id}).scalars()):
        if end is JobState.SUCCEEDED:
            connection.execute(_WAIT_FOR_LESS, {"dependent": dependent})
            continue
        told = f"job {job_id}, which it waits for, has {_ENDS[end]}"
        change_state(
            connection,
            dependent,
            JobState.CANCELLED,
            cause="dependency",
            actor="system",
            values={"error_class": "dependency", "error_message": told},
            payload={"depends_on": job_id},
        )


_ENDS = {JobState.FAILED: "failed", JobState.CANCELLED: "been cancelled"}


def _obey(connection: sa.Connection, job_id: str, desired: Desired, actor: str) -> JobState | None:
    to, cause = (JobState.PAUSED, "pause") if desired is Desired.PAUSE else (JobState.CANCELLED, "cancel")
    return change_state(connection, job_id, to, cause=cause, actor=actor)
