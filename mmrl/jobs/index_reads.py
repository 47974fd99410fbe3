"""What the index knows of a run: metrics thinned to what a chart can show, checkpoints, shards of samples.

Where a run was resumed, rows of an earlier attempt beyond the step that the next one went on from do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.records import CheckpointRow, MetricPoint, ShardRow
from mmrl.jobs.rows import to_checkpoint, to_shard

_SIZE = tables.ROLLUP_STEPS


def metric_keys(connection: sa.Connection, job_id: str) -> list[str]:
    table = tables.metric_rollups
    query = sa.select(table.c.key).where(table.c.job_id == job_id).distinct().order_by(table.c.key)
    return list(connection.execute(query).scalars())


def read_metrics(
    connection: sa.Connection, job_id: str, keys: Iterable[str] | None, max_points: int
) -> dict[str, list[MetricPoint]]:
    """Each metric in at most `max_points` points: steps as they are where they are few, else means with extremes."""
    wanted = metric_keys(connection, job_id) if keys is None else list(keys)
    ends = _ends(connection, job_id)
    return {key: _series(connection, job_id, key, ends, max_points) for key in wanted}


def read_checkpoints(connection: sa.Connection, job_id: str) -> list[CheckpointRow]:
    """Checkpoints that are complete, by step; of two of the same step the later attempt's."""
    table = tables.checkpoints
    query = sa.select(table).where(table.c.job_id == job_id, table.c.state == "complete")
    rows = connection.execute(query.order_by(table.c.step, table.c.attempt))
    ends = _ends(connection, job_id)
    by_step = {row.step: to_checkpoint(row) for row in rows if _counts(row.attempt, row.step, ends)}
    return list(by_step.values())


def read_shards(connection: sa.Connection, job_id: str) -> list[ShardRow]:
    """Shards that hold at least one step that counts, by split and step."""
    table = tables.sample_shards
    query = sa.select(table).where(table.c.job_id == job_id)
    rows = connection.execute(query.order_by(table.c.split, table.c.step_lo, table.c.attempt))
    ends = _ends(connection, job_id)
    return [to_shard(row) for row in rows if _counts(row.attempt, row.step_lo, ends)]


def _ends(connection: sa.Connection, job_id: str) -> dict[int, int]:
    """For each attempt the last step that counts of it, where a later one went on from an earlier step."""
    table = tables.attempts
    query = sa.select(table.c.attempt, table.c.first_step).where(table.c.job_id == job_id)
    ends: dict[int, int] = {}
    last: int | None = None
    for row in connection.execute(query.order_by(table.c.attempt.desc())):
        if last is not None:
            ends[row.attempt] = last
        if row.first_step is not None:
            last = row.first_step if last is None else min(last, row.first_step)
    return ends


def _counts(attempt: int, step: int, ends: dict[int, int]) -> bool:
    return attempt not in ends or step <= ends[attempt]


def _series(
    connection: sa.Connection, job_id: str, key: str, ends: dict[int, int], max_points: int
) -> list[MetricPoint]:
    rollups, table = tables.metric_rollups, tables.metrics
    buckets = connection.execute(
        sa.select(rollups)
        .where(rollups.c.job_id == job_id, rollups.c.key == key)
        .order_by(rollups.c.bucket, rollups.c.attempt)
    ).all()
    whole = [row for row in buckets if _counts(row.attempt, row.bucket * _SIZE, ends)]
    if sum(row.num_values for row in whole) <= max_points:
        rows = connection.execute(
            sa.select(table.c.step, table.c.attempt, table.c.value)
            .where(table.c.job_id == job_id, table.c.key == key)
            .order_by(table.c.step, table.c.attempt)
        )
        by_step = {row.step: row for row in rows if _counts(row.attempt, row.step, ends)}
        return [MetricPoint(row.step, row.value, row.value, row.value, row.attempt) for row in by_step.values()]
    size = -(-len(whole) // max_points)
    return [_joined(whole[start : start + size]) for start in range(0, len(whole), size)]


def _joined(rows: Sequence[Any]) -> MetricPoint:
    count = sum(row.num_values for row in rows)
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    mean = sum(row.total for row in rows if row.total is not None) / count if count else None
    last = rows[-1]
    return MetricPoint(last.last_step, mean, min(lows, default=None), max(highs, default=None), last.attempt)
