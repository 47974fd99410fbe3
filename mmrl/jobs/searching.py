"""Which jobs someone looks for, as conditions that the database answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.records import Job
from mmrl.jobs.rows import JOB_COLUMNS, read_jobs
from mmrl.jobs.states import JobState

_RECENT = 1000


@dataclass(frozen=True)
class JobFilter:
    """What a job must have; what is empty or None is not asked for.

    text: stands in its name, id, note, tags or error, whatever the case. tags: all of them. owner: a user's id.
    max_age_s: submitted no longer ago than that.
    """

    states: tuple[JobState, ...] = ()
    kinds: tuple[str, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()
    pool: str | None = None
    owner: str | None = None
    name: str | None = None
    max_age_s: float | None = None


@dataclass(frozen=True)
class JobChoices:
    """What there is to choose among. owners: user id -> name. tags: of the newest thousand jobs that have any."""

    kinds: tuple[str, ...]
    pools: tuple[str, ...]
    owners: dict[str, str]
    tags: tuple[str, ...]


def search_jobs(
    connection: sa.Connection,
    database: Database,
    wanted: JobFilter,
    *,
    limit: int | None,
    before: str | None = None,
    after: str | None = None,
) -> list[Job]:
    """The newest first. after: the page that ends above that job; before: the one that begins below it."""
    table = tables.jobs
    query = sa.select(*JOB_COLUMNS).where(*_conditions(connection, database, wanted)).limit(limit)
    if after is not None:
        newer = query.where(table.c.id > after).order_by(table.c.id)
        return read_jobs(connection, connection.execute(newer))[::-1]
    if before is not None:
        query = query.where(table.c.id < before)
    return read_jobs(connection, connection.execute(query.order_by(table.c.id.desc())))


def count_jobs(connection: sa.Connection, database: Database, wanted: JobFilter) -> int:
    query = sa.select(sa.func.count()).select_from(tables.jobs).where(*_conditions(connection, database, wanted))
    return int(connection.execute(query).scalar_one())


def choices(connection: sa.Connection) -> JobChoices:
    table, users = tables.jobs, tables.users
    kinds = connection.execute(sa.select(table.c.kind).distinct().order_by(table.c.kind)).scalars()
    pools = connection.execute(sa.select(tables.pools.c.name).order_by(tables.pools.c.name)).scalars()
    owners = connection.execute(
        sa.select(users.c.id, users.c.name)
        .where(sa.exists().where(table.c.owner_id == users.c.id))
        .order_by(users.c.name)
    )
    tagged = sa.select(table.c.tags).where(sa.cast(table.c.tags, sa.Text) != "[]")
    tags = connection.execute(tagged.order_by(table.c.id.desc()).limit(_RECENT)).scalars()
    return JobChoices(
        tuple(kinds),
        tuple(pools),
        {row.id: row.name for row in owners},
        tuple(sorted({tag for each in tags for tag in each})),
    )


def _conditions(connection: sa.Connection, database: Database, wanted: JobFilter) -> list[Any]:
    table = tables.jobs
    found: list[Any] = []
    if wanted.states:
        found.append(table.c.state.in_([state.value for state in wanted.states]))
    if wanted.kinds:
        found.append(table.c.kind.in_(wanted.kinds))
    for column, value in ((table.c.pool, wanted.pool), (table.c.owner_id, wanted.owner), (table.c.name, wanted.name)):
        if value is not None:
            found.append(column == value)
    found += [_contains(table.c.tags, json.dumps(tag)) for tag in wanted.tags]
    if wanted.max_age_s is not None:
        found.append(table.c.created_at >= database.now(connection) - wanted.max_age_s)
    if wanted.text.strip():
        found.append(sa.or_(*(_contains(column, wanted.text.strip()) for column in _searched())))
    return found


def _searched() -> Sequence[Any]:
    table = tables.jobs
    return (table.c.name, table.c.id, table.c.note, table.c.tags, table.c.error_message)


def _contains(column: Any, text: str) -> Any:
    """Text within a column, where % and _ mean themselves."""
    return sa.func.lower(sa.cast(column, sa.Text)).contains(text.lower(), autoescape=True)
