"""The statements of a claim, and how each engine runs them. They are built once; see `transitions`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.compiled import Compiled, from_json
from mmrl.jobs.rows import JOB_COLUMNS
from mmrl.jobs.states import JobState
from mmrl.jobs.transitions import STATE_CHANNEL

_JOBS, _WORKERS, _POOLS = tables.jobs, tables.workers, tables.pools
_EVENTS, _OUTBOX, _ATTEMPTS = tables.job_events, tables.outbox, tables.attempts
_HELD = _JOBS.alias("held")
_IS_HELD = sa.text(tables.HELD_SQL)
_WORKER_COLUMNS = ("pool", "cpus", "gpus", "backends", "host", "boot_id", "state")


def slots(jobs: Any) -> sa.ColumnElement[int]:
    """CPU slots that a job takes of its worker: one, where its resources are Ray's."""
    return sa.case((jobs.c.backend == "ray", 1), else_=jobs.c.cpus)


def ready(pool: sa.ColumnElement[str] | str) -> sa.ColumnElement[bool]:
    """Whether a job waits for nothing but a worker of the pool. The words of the queue's index, so that it is used."""
    return sa.and_(
        sa.text("state = 'queued' AND num_waited_for = 0"), _JOBS.c.pool == pool, _JOBS.c.available_at <= NOW
    )


_LOCK_WORKER = (
    sa.select(*(_WORKERS.c[name] for name in _WORKER_COLUMNS), _POOLS.c.capacity)
    .join_from(_WORKERS, _POOLS, _POOLS.c.name == _WORKERS.c.pool)
    .where(_WORKERS.c.id == bindparam("of_worker"))
    .with_for_update(of=_WORKERS)
)


class OnPostgres:
    """Two round trips: the worker's row, and all the rest."""

    def read_worker(self, connection: sa.Connection, worker_id: str) -> dict[str, Any] | None:
        """The worker's columns and its pool's capacity, its row locked."""
        row = connection.execute(_LOCK_WORKER, {"of_worker": worker_id}).first()
        return None if row is None else dict(row._mapping)

    def take(
        self, connection: sa.Connection, values: Mapping[str, Any], told: Mapping[str, Any]
    ) -> tuple[Any, ...] | None:
        """The columns of the job that was taken, in the order of JOB_COLUMNS; attempt and event are written.

        values: what the statement below asks for. told: host, boot_id and token of the attempt, actor of the event.
        """
        row = connection.execute(_claim_and_tell("job" in values), {**values, **told}).first()
        return None if row is None else tuple(row)

    def columns(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row of `take` as SQLAlchemy would give it."""
        return row


class OnSqlite:
    """The same by the driver; see `compiled`."""

    def read_worker(self, connection: sa.Connection, worker_id: str) -> dict[str, Any] | None:
        row = _sqlite_worker().run(connection, {"of_worker": worker_id}).fetchone()
        if row is None:
            return None
        found = dict(zip((*_WORKER_COLUMNS, "capacity"), row, strict=True))
        return found | {name: from_json(found[name]) for name in ("gpus", "backends")}

    def take(
        self, connection: sa.Connection, values: Mapping[str, Any], told: Mapping[str, Any]
    ) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = _sqlite_claim("job" in values).run(connection, values).fetchone()
        if row is None:
            return None
        job_id, attempt = row[_AT["id"]], row[_AT["attempt"]]
        insert_attempt, insert_event, insert_message = _sqlite_inserts()
        of_job = {"job_id": job_id, "attempt": attempt}
        insert_attempt.run(
            connection, {**of_job, **told, "backend": row[_AT["backend"]], "worker_id": row[_AT["worker_id"]]}
        )
        event = insert_event.run(connection, {**of_job, "actor": told["actor"], "payload": "{}"})
        insert_message.run(connection, {"event_id": event.lastrowid})
        return row

    def columns(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(from_json(value) if is_json else value for value, is_json in zip(row, _IS_JSON, strict=True))


_AT = {column.name: index for index, column in enumerate(JOB_COLUMNS)}
_IS_JSON = [isinstance(column.type, sa.JSON) for column in JOB_COLUMNS]
_CHANGE = {"from_state": JobState.QUEUED.value, "to_state": JobState.STARTING.value, "cause": "claim"}


@cache
def _sqlite_worker() -> Compiled:
    return Compiled(_LOCK_WORKER)


@cache
def _sqlite_claim(is_named: bool) -> Compiled:
    return Compiled(_claim(is_named))


@cache
def _sqlite_inserts() -> tuple[Compiled, Compiled, Compiled]:
    attempt = ["job_id", "attempt", "backend", "worker_id", "host", "boot_id", "token"]
    return (
        Compiled(_ATTEMPTS.insert().values(started_at=NOW), attempt),
        Compiled(_EVENTS.insert().values(at=NOW, **_CHANGE), ["job_id", "attempt", "actor", "payload"]),
        Compiled(_OUTBOX.insert().values(channel=STATE_CHANNEL, tries=0), ["event_id"]),
    )


def _fits(cpus: Any, num_gpus: Any) -> sa.ColumnElement[bool]:
    """Whether a job fits into so many CPU slots and GPUs. Ray looks for the resources of its own jobs."""
    return sa.and_(cpus >= slots(_JOBS), sa.or_(_JOBS.c.backend == "ray", _JOBS.c.gpus <= num_gpus))


@cache
def _claim(is_named: bool) -> sa.UpdateBase:
    """Picks and takes in one statement. Picked is the first job that the worker could hold if it were empty, and that
    fits now or has waited so long that nothing may overtake it here any more; taken is it only if it fits.
    """
    taken = sa.func.coalesce(sa.func.sum(slots(_HELD)), 0)
    used = sa.select((bindparam("num_cpus", type_=sa.Integer) - taken).label("cpus"))
    room = used.where(_HELD.c.worker_id == bindparam("of_worker"), _IS_HELD).cte("room")
    free_cpus = sa.select(room.c.cpus).scalar_subquery()  # not a join, for which SQLite would sort the whole queue
    fits_now = _fits(free_cpus, bindparam("free_gpus", type_=sa.Integer))
    has_waited = _JOBS.c.queued_at + bindparam("hold_back_s", type_=sa.Double) <= NOW
    could = _fits(bindparam("num_cpus", type_=sa.Integer), bindparam("num_gpus", type_=sa.Integer))
    query = sa.select(_JOBS.c.id, fits_now.label("fits")).where(
        ready(bindparam("of_pool", type_=sa.Text)),
        sa.or_(_JOBS.c.backend == bindparam("a_backend"), _JOBS.c.backend == bindparam("other_backend")),
        could,
        sa.or_(fits_now, has_waited),
    )
    if is_named:
        query = query.where(_JOBS.c.id == bindparam("job"))
    first = query.order_by(_JOBS.c.priority.desc(), _JOBS.c.id).limit(1)
    picked = first.with_for_update(skip_locked=True).cte("picked")
    values = {
        "state": JobState.STARTING.value,
        "attempt": _JOBS.c.attempt + 1,
        "lease_epoch": _JOBS.c.lease_epoch + 1,
        "worker_id": bindparam("of_worker"),
        "lease_expires_at": NOW + bindparam("lease_s", type_=sa.Double),
        "started_at": sa.func.coalesce(_JOBS.c.started_at, NOW),
        "error_class": None,
        "error_message": None,
        "exit_code": None,
    }
    fitting = sa.select(picked.c.id).where(picked.c.fits).scalar_subquery()
    is_it = sa.and_(_JOBS.c.id == fitting, _JOBS.c.state == JobState.QUEUED.value)
    return _JOBS.update().where(is_it).values(values).returning(*JOB_COLUMNS)


@cache
def _claim_and_tell(is_named: bool) -> sa.Select[Any]:
    """On PostgreSQL the attempt, the event and the message go along in the same statement: three round trips less."""
    claimed = _claim(is_named).cte("claimed")
    attempt = {
        "job_id": claimed.c.id,
        "attempt": claimed.c.attempt,
        "backend": claimed.c.backend,
        "worker_id": claimed.c.worker_id,
        "started_at": NOW,
        **{name: bindparam(name, type_=sa.Text) for name in ("host", "boot_id", "token")},
    }
    event = {
        "job_id": claimed.c.id,
        "attempt": claimed.c.attempt,
        "at": NOW,
        **{name: sa.literal(word) for name, word in _CHANGE.items()},
        "actor": bindparam("actor", type_=sa.Text),
        "payload": sa.literal({}, sa.JSON),
    }
    noted = _ATTEMPTS.insert().from_select(list(attempt), sa.select(*attempt.values())).cte("noted")
    told = _EVENTS.insert().from_select(list(event), sa.select(*event.values())).returning(_EVENTS.c.id).cte("told")
    message = sa.select(told.c.id, sa.literal(STATE_CHANNEL), sa.literal(0))
    sent = _OUTBOX.insert().from_select(["event_id", "channel", "tries"], message).cte("sent")
    return sa.select(claimed).add_cte(noted, sent)
