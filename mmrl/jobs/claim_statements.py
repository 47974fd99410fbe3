"""The statements of a claim, and how each engine runs them. They are built once; see `transitions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.compiled import Compiled, driver_of, from_json
from mmrl.jobs.rows import JOB_COLUMNS
from mmrl.jobs.states import JobState
from mmrl.jobs.transitions import STATE_CHANNEL

_JOBS, _WORKERS, _POOLS = tables.jobs, tables.workers, tables.pools
_EVENTS, _OUTBOX, _ATTEMPTS = tables.job_events, tables.outbox, tables.attempts
_HELD = _JOBS.alias("held")
_IS_HELD = sa.text(tables.HELD_SQL)
_WORKER_COLUMNS = ("pool", "cpus", "gpus", "backends", "host", "boot_id", "state")


def _word(text: str) -> sa.ColumnElement[Any]:
    """A plain word as it stands in SQL; a parameter for it would make statements longer and slower."""
    return sa.literal_column(f"'{text}'", sa.Text)


def slots(jobs: Any) -> sa.ColumnElement[int]:
    """CPU slots that a job takes of its worker: one, where its resources are Ray's."""
    return sa.case((jobs.c.backend == _word("ray"), sa.literal_column("1")), else_=jobs.c.cpus)


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
    """Two round trips in a transaction: the worker's row, and all the rest. One without, where nothing is shared."""

    def read_worker(self, connection: sa.Connection, worker_id: str) -> dict[str, Any] | None:
        """The worker's columns and its pool's capacity, its row locked."""
        row = connection.execute(_LOCK_WORKER, {"of_worker": worker_id}).first()
        return None if row is None else dict(row._mapping)

    def take(self, connection: sa.Connection, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The columns of the job that was taken, in the order of JOB_COLUMNS; attempt and event are written.

        values: what the statement below asks for; host, boot_id and token of the attempt, actor of the event.
        """
        row = connection.execute(_claim_and_tell("job" in values), values).first()
        return None if row is None else tuple(row)

    def take_at_once(self, driver: Any, values: Mapping[str, Any]) -> tuple[bool, tuple[Any, ...] | None]:
        """Whether this way is open to the worker (no GPUs, no capacity of its pool), and the job that it got by it.

        driver: a connection that commits each statement. values: of_worker, lease_s, hold_back_s, token, actor; job
        where it is to be that one.
        """
        row = _postgres_at_once("job" in values).run(driver, values).fetchone()
        if row is None:
            return True, None
        num_gpus, capacity, *columns = row
        return num_gpus == 0 and capacity is None, tuple(columns) if columns[0] is not None else None

    def columns(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row of `take` as SQLAlchemy would give it."""
        return row


class OnSqlite:
    """The same by the driver; see `compiled`."""

    def read_worker(self, connection: sa.Connection, worker_id: str) -> dict[str, Any] | None:
        row = _sqlite_worker().run(driver_of(connection), {"of_worker": worker_id}).fetchone()
        if row is None:
            return None
        found = dict(zip((*_WORKER_COLUMNS, "capacity"), row, strict=True))
        return found | {name: from_json(found[name]) for name in ("gpus", "backends")}

    def take(self, connection: sa.Connection, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = _sqlite_claim("job" in values).run(driver_of(connection), values).fetchone()
        if row is None:
            return None
        driver, job_id, attempt = driver_of(connection), row[_AT["id"]], row[_AT["attempt"]]
        insert_attempt, insert_event, insert_message = _sqlite_inserts()
        of_job = {"job_id": job_id, "attempt": attempt}
        insert_attempt.run(
            driver, {**of_job, **values, "backend": row[_AT["backend"]], "worker_id": row[_AT["worker_id"]]}
        )
        event = insert_event.run(driver, {**of_job, "actor": values["actor"], "payload": "{}"})
        insert_message.run(driver, {"event_id": event.lastrowid})
        return row

    def columns(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(from_json(value) if is_json else value for value, is_json in zip(row, _IS_JSON, strict=True))


_AT = {column.name: index for index, column in enumerate(JOB_COLUMNS)}
_IS_JSON = [isinstance(column.type, sa.JSON) for column in JOB_COLUMNS]
_CHANGE = {"from_state": JobState.QUEUED.value, "to_state": JobState.STARTING.value, "cause": "claim"}


@cache
def _postgres_at_once(is_named: bool) -> Compiled:
    return Compiled(_claim_at_once(is_named), "postgresql")


@cache
def _sqlite_worker() -> Compiled:
    return Compiled(_LOCK_WORKER, "sqlite")


@cache
def _sqlite_claim(is_named: bool) -> Compiled:
    return Compiled(_claim(is_named).returning(*JOB_COLUMNS), "sqlite")


@cache
def _sqlite_inserts() -> tuple[Compiled, Compiled, Compiled]:
    attempt = ["job_id", "attempt", "backend", "worker_id", "host", "boot_id", "token"]
    return (
        Compiled(_ATTEMPTS.insert().values(started_at=NOW), "sqlite", attempt),
        Compiled(_EVENTS.insert().values(at=NOW, **_CHANGE), "sqlite", ["job_id", "attempt", "actor", "payload"]),
        Compiled(_OUTBOX.insert().values(channel=STATE_CHANNEL, tries=0), "sqlite", ["event_id"]),
    )


def _fits(cpus: Any, num_gpus: Any) -> sa.ColumnElement[bool]:
    """Whether a job fits into so many CPU slots and GPUs. Ray looks for the resources of its own jobs."""
    return sa.and_(cpus >= slots(_JOBS), sa.or_(_JOBS.c.backend == _word("ray"), _JOBS.c.gpus <= num_gpus))


@dataclass(frozen=True)
class _Has:
    """What the worker of a claim has, as parameters or as columns of its row."""

    pool: Any
    num_cpus: Any
    num_gpus: Any
    free_gpus: Any
    takes_backend: sa.ColumnElement[bool]


_GIVEN = _Has(
    pool=bindparam("of_pool", type_=sa.Text),
    num_cpus=bindparam("num_cpus", type_=sa.Integer),
    num_gpus=bindparam("num_gpus", type_=sa.Integer),
    free_gpus=bindparam("free_gpus", type_=sa.Integer),
    takes_backend=sa.or_(_JOBS.c.backend == bindparam("a_backend"), _JOBS.c.backend == bindparam("other_backend")),
)


@cache
def _claim(is_named: bool, has: _Has = _GIVEN) -> sa.Update:
    """Picks and takes in one statement. Picked is the first job that the worker could hold if it were empty, and that
    fits now or has waited so long that nothing may overtake it here any more; taken is it only if it fits.
    """
    taken = sa.func.coalesce(sa.func.sum(slots(_HELD)), sa.literal_column("0"))
    used = sa.select((has.num_cpus - taken).label("cpus"))
    room = used.where(_HELD.c.worker_id == bindparam("of_worker"), _IS_HELD).cte("room")
    free_cpus = sa.select(room.c.cpus).scalar_subquery()  # not a join, for which SQLite would sort the whole queue
    fits_now = _fits(free_cpus, has.free_gpus)
    has_waited = _JOBS.c.queued_at + bindparam("hold_back_s", type_=sa.Double) <= NOW
    could = _fits(has.num_cpus, has.num_gpus)
    query = sa.select(_JOBS.c.id, fits_now.label("fits")).where(
        ready(has.pool), has.takes_backend, could, sa.or_(fits_now, has_waited)
    )
    if is_named:
        query = query.where(_JOBS.c.id == bindparam("job"))
    first = query.order_by(_JOBS.c.priority.desc(), _JOBS.c.id).limit(sa.literal_column("1"))
    picked = first.with_for_update(skip_locked=True).cte("picked")
    values = {
        "state": _word(JobState.STARTING.value),
        "attempt": _JOBS.c.attempt + sa.literal_column("1"),
        "lease_epoch": _JOBS.c.lease_epoch + sa.literal_column("1"),
        "worker_id": bindparam("of_worker"),
        "lease_expires_at": NOW + bindparam("lease_s", type_=sa.Double),
        "started_at": sa.func.coalesce(_JOBS.c.started_at, NOW),
        **dict.fromkeys(("error_class", "error_message", "exit_code"), sa.null()),
    }
    fitting = sa.select(picked.c.id).where(picked.c.fits).scalar_subquery()
    is_it = sa.and_(_JOBS.c.id == fitting, _JOBS.c.state == _word(JobState.QUEUED.value))
    return _JOBS.update().where(is_it).values(values)


@cache
def _claim_and_tell(is_named: bool) -> sa.Select[Any]:
    """On PostgreSQL the attempt, the event and the message go along in the same statement: three round trips less."""
    claimed = _claim(is_named).returning(*JOB_COLUMNS).cte("claimed")
    told = {name: bindparam(name, type_=sa.Text) for name in ("host", "boot_id")}
    return sa.select(claimed).add_cte(*_telling(claimed, told))


@cache
def _claim_at_once(is_named: bool) -> sa.Select[Any]:
    """All of a claim in one statement, for a worker without GPUs in a pool without a capacity. Its first two columns,
    the number of GPUs and the capacity, say whether it is one; the job's are empty where none was taken."""
    me = (
        sa.select(*(_WORKERS.c[name] for name in _WORKER_COLUMNS), _POOLS.c.capacity)
        .join_from(_WORKERS, _POOLS, _POOLS.c.name == _WORKERS.c.pool)
        .where(_WORKERS.c.id == bindparam("of_worker"), _WORKERS.c.state == _word("active"))
        .cte("me")
    )

    def mine(column: Any) -> Any:
        return sa.select(column).scalar_subquery()

    num_gpus = sa.func.json_array_length(me.c.gpus, type_=sa.Integer)
    is_plain = sa.and_(me.c.capacity.is_(None), num_gpus == sa.literal_column("0"))
    backends = sa.cast(me.c.backends, sa.Text)
    takes = mine(sa.and_(is_plain, backends.contains(sa.func.concat(_word('"'), _JOBS.c.backend, _word('"')))))
    has = _Has(mine(me.c.pool), mine(me.c.cpus), sa.literal_column("0"), sa.literal_column("0"), takes)
    claimed = _claim(is_named, has).returning(*JOB_COLUMNS).cte("claimed")
    told = {name: mine(me.c[name]) for name in ("host", "boot_id")}
    all_columns = sa.text("claimed.*")  # spelt out, they make the statement longer than psycopg keeps in its cache
    return (
        sa.select(num_gpus, me.c.capacity, all_columns)
        .select_from(me.outerjoin(claimed, sa.true()))
        .add_cte(*_telling(claimed, told))
    )


def _telling(claimed: sa.CTE, place: Mapping[str, Any]) -> tuple[sa.CTE, sa.CTE]:
    """The attempt, and the event with its message. place: host and boot_id."""
    attempt = {
        "job_id": claimed.c.id,
        "attempt": claimed.c.attempt,
        "backend": claimed.c.backend,
        "worker_id": claimed.c.worker_id,
        "started_at": NOW,
        "token": bindparam("token", type_=sa.Text),
        **place,
    }
    event = {
        "job_id": claimed.c.id,
        "attempt": claimed.c.attempt,
        "at": NOW,
        **{name: _word(word) for name, word in _CHANGE.items()},
        "actor": bindparam("actor", type_=sa.Text),
        "payload": sa.literal_column("'{}'::json"),
    }
    noted = _ATTEMPTS.insert().from_select(list(attempt), sa.select(*attempt.values())).cte("noted")
    told = _EVENTS.insert().from_select(list(event), sa.select(*event.values())).returning(_EVENTS.c.id).cte("told")
    message = sa.select(told.c.id, _word(STATE_CHANNEL), sa.literal_column("0"))
    return noted, _OUTBOX.insert().from_select(["event_id", "channel", "tries"], message).cte("sent")
