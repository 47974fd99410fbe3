"""Metrics into the database, with their roll-ups. The statements are built once; see `transitions`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.jobs import tables

MetricRow = tuple[int, str, float | None]
"""(step, key, value); None where the value was no finite number."""


def write_metrics(connection: sa.Connection, job_id: str, attempt: int, rows: Iterable[MetricRow]) -> None:
    """Adds rows of one attempt, a later value of the same step and key winning, and computes the roll-ups of their
    steps from the rows themselves. Doing it again changes nothing."""
    found = {(key, step): value for step, key, value in rows}
    if not found:
        return
    values = [
        {"job_id": job_id, "attempt": attempt, "step": step, "key": key, "value": _finite(value)}
        for (key, step), value in sorted(found.items())
    ]
    upsert(connection, tables.metrics, values)
    size = tables.ROLLUP_STEPS
    steps = [step for _, step in found]
    scope = {
        "of_job": job_id,
        "of_attempt": attempt,
        "keys": sorted({key for key, _ in found}),
        "first": min(steps) // size * size,
        "end": (max(steps) // size + 1) * size,
    }
    connection.execute(_roll_up(connection.dialect.name), scope)


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows; one whose primary key is there takes its place."""
    connection.execute(_upsert(connection.dialect.name, table), list(rows))


def insert_into(dialect: str, table: sa.Table) -> Any:
    """An INSERT that knows ON CONFLICT."""
    return (postgresql if dialect == "postgresql" else sqlite).insert(table)


@cache
def _upsert(dialect: str, table: sa.Table) -> sa.Insert:
    insert = insert_into(dialect, table)
    keys = [column.name for column in table.primary_key]
    new = {column.name: insert.excluded[column.name] for column in table.c if column.name not in keys}
    statement: sa.Insert = insert.on_conflict_do_update(index_elements=keys, set_=new)
    return statement


@cache
def _roll_up(dialect: str) -> sa.Insert:
    table, size = tables.metrics, tables.ROLLUP_STEPS
    bucket = sa.cast((table.c.step - table.c.step % size) / size, sa.Integer).label("bucket")
    value = table.c.value
    figures = [sa.func.count(value), sa.func.sum(value), sa.func.min(value), sa.func.max(value)]
    source = (
        sa.select(table.c.job_id, table.c.key, bucket, table.c.attempt, *figures, sa.func.max(table.c.step))
        .where(
            table.c.job_id == bindparam("of_job"),
            table.c.key.in_(bindparam("keys", expanding=True)),
            table.c.step >= bindparam("first"),
            table.c.step < bindparam("end"),
            table.c.attempt == bindparam("of_attempt"),
        )
        .group_by(table.c.job_id, table.c.key, sa.text("bucket"), table.c.attempt)
    )
    names = ["job_id", "key", "bucket", "attempt", "num_values", "total", "low", "high", "last_step"]
    insert = insert_into(dialect, tables.metric_rollups).from_select(names, source)
    new = {name: insert.excluded[name] for name in names[4:]}
    statement: sa.Insert = insert.on_conflict_do_update(index_elements=names[:4], set_=new)
    return statement


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
