"""Metrics of a run out of the index, thinned to what a chart can show.

Few values are told as they are. More are averaged over equal spans of steps, from the values themselves, or where those
are very many from the roll-ups. Where a run was resumed, values of an earlier attempt beyond the step that the next one
went on from do not count, and of two of the same step the later attempt's does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.records import MetricPoint

_SIZE = tables.ROLLUP_STEPS


def metric_keys(connection: sa.Connection, job_id: str) -> list[str]:
    table = tables.metric_rollups
    query = sa.select(table.c.key).where(table.c.job_id == job_id).distinct().order_by(table.c.key)
    return list(connection.execute(query).scalars())


def read_metrics(
    connection: sa.Connection, job_id: str, keys: Iterable[str] | None, max_points: int
) -> dict[str, list[MetricPoint]]:
    """Each metric in at most `max_points` points, by step: values as they are, or means with extremes."""
    wanted = metric_keys(connection, job_id) if keys is None else list(dict.fromkeys(keys))
    line = SurvivingLine.of(connection, job_id)
    extents = _extents(connection, job_id, wanted)
    few = [key for key in wanted if key in extents and extents[key].num_values <= max_points]
    many = [key for key in wanted if key in extents and extents[key].num_values > _SIZE * max_points]
    found = {
        **_as_they_are(connection, line, few),
        **{
            key: _averaged(connection, line, key, extents[key], max_points)
            for key in wanted
            if key in extents and key not in few and key not in many
        },
        **_rolled_up(connection, line, many, max_points),
    }
    return {key: _at_most(found.get(key, []), max_points) for key in wanted}


def last_values(connection: sa.Connection, job_id: str) -> dict[str, MetricPoint]:
    """The last value of each metric along the surviving line; None in it where that was no finite number."""
    line = SurvivingLine.of(connection, job_id)
    rollups, table = tables.metric_rollups, tables.metrics
    last = (
        sa.select(rollups.c.key, sa.func.max(rollups.c.bucket).label("bucket"))
        .where(rollups.c.job_id == job_id, line.counts(rollups.c.attempt, rollups.c.bucket * _SIZE))
        .group_by(rollups.c.key)
        .subquery()
    )
    query = (
        sa.select(table.c.key, table.c.step, table.c.attempt, table.c.value)
        .join_from(table, last, table.c.key == last.c.key)
        .where(table.c.job_id == job_id, table.c.step >= last.c.bucket * _SIZE, line.counts_of(table))
        .order_by(table.c.key, table.c.step, table.c.attempt)
    )
    return {row.key: _point(row) for row in connection.execute(query)}


def recent_values(connection: sa.Connection, job_id: str, key: str, limit: int) -> list[MetricPoint]:
    """The last so many values of a metric as they are, by step."""
    table = tables.metrics
    line = SurvivingLine.of(connection, job_id)
    query = (
        sa.select(table.c.step, table.c.attempt, table.c.value)
        .where(table.c.job_id == job_id, table.c.key == key, line.counts_of(table))
        .order_by(table.c.step.desc())
        .limit(limit)
    )
    return [_point(row) for row in connection.execute(query)][::-1]


@dataclass(frozen=True)
class SurvivingLine:
    """ends: attempt -> the last step that counts of it, where a later one went on from an earlier step."""

    job_id: str
    ends: Mapping[int, int]

    @classmethod
    def of(cls, connection: sa.Connection, job_id: str) -> SurvivingLine:
        table = tables.attempts
        query = sa.select(table.c.attempt, table.c.first_step).where(table.c.job_id == job_id)
        ends: dict[int, int] = {}
        last: int | None = None
        for row in connection.execute(query.order_by(table.c.attempt.desc())):
            if last is not None:
                ends[row.attempt] = last
            if row.first_step is not None:
                last = row.first_step if last is None else min(last, row.first_step)
        return cls(job_id, ends)

    def holds(self, attempt: int, step: int) -> bool:
        return attempt not in self.ends or step <= self.ends[attempt]

    def counts(self, attempt: Any, step: Any) -> Any:
        """`holds` as a condition on two columns."""
        beyond = [sa.and_(attempt == number, step > end) for number, end in self.ends.items()]
        return sa.not_(sa.or_(*beyond)) if beyond else sa.true()

    def counts_of(self, table: Any) -> Any:
        """The same of rows of metrics; of a step that two attempts wrote only the later one's."""
        later = table.alias()
        is_later = sa.exists().where(
            later.c.job_id == table.c.job_id,
            later.c.key == table.c.key,
            later.c.step == table.c.step,
            later.c.attempt > table.c.attempt,
        )
        twice = [sa.and_(table.c.attempt == number, table.c.step == end) for number, end in self.ends.items()]
        whole = self.counts(table.c.attempt, table.c.step)
        return sa.and_(whole, sa.not_(sa.and_(sa.or_(*twice), is_later))) if twice else whole


@dataclass(frozen=True)
class _Extent:
    """num_values: finite ones, abandoned ones included. first, last: steps between which all lie."""

    num_values: int
    first: int
    last: int


def _extents(connection: sa.Connection, job_id: str, keys: Sequence[str]) -> dict[str, _Extent]:
    table = tables.metric_rollups
    query = (
        sa.select(
            table.c.key, sa.func.sum(table.c.num_values), sa.func.min(table.c.bucket), sa.func.max(table.c.last_step)
        )
        .where(table.c.job_id == job_id, table.c.key.in_(keys))
        .group_by(table.c.key)
    )
    return {row[0]: _Extent(int(row[1]), int(row[2]) * _SIZE, int(row[3])) for row in connection.execute(query)}


def _as_they_are(connection: sa.Connection, line: SurvivingLine, keys: Sequence[str]) -> dict[str, list[MetricPoint]]:
    table = tables.metrics
    query = (
        sa.select(table.c.key, table.c.step, table.c.attempt, table.c.value)
        .where(table.c.job_id == line.job_id, table.c.key.in_(keys), line.counts_of(table))
        .order_by(table.c.key, table.c.step)
    )
    found: dict[str, list[MetricPoint]] = defaultdict(list)
    for row in connection.execute(query) if keys else ():
        found[row.key].append(_point(row))
    return found


def _averaged(
    connection: sa.Connection, line: SurvivingLine, key: str, extent: _Extent, max_points: int
) -> list[MetricPoint]:
    table = tables.metrics
    size = -(-(extent.last - extent.first + 1) // max_points)
    place = table.c.step - extent.first
    bucket = (place - place % size).label("bucket")
    query = (
        sa.select(bucket, *_figures(table.c.value), sa.func.max(table.c.step), sa.func.max(table.c.attempt))
        .where(table.c.job_id == line.job_id, table.c.key == key, line.counts_of(table))
        .group_by(sa.text("bucket"))
        .order_by(sa.text("bucket"))
    )
    rows: Any = connection.execute(query)
    return [_mean(count, total, low, high, step, attempt) for _, count, total, low, high, step, attempt in rows]


def _rolled_up(
    connection: sa.Connection, line: SurvivingLine, keys: Sequence[str], max_points: int
) -> dict[str, list[MetricPoint]]:
    table = tables.metric_rollups
    query = (
        sa.select(table)
        .where(
            table.c.job_id == line.job_id, table.c.key.in_(keys), line.counts(table.c.attempt, table.c.bucket * _SIZE)
        )
        .order_by(table.c.key, table.c.bucket, table.c.attempt)
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(query) if keys else ():
        found[row.key].append(row if _is_whole(row, line) else _cut(connection, line, row))
    return {key: _joined_all(rows, max_points) for key, rows in found.items()}


def _is_whole(row: Any, line: SurvivingLine) -> bool:
    return line.holds(row.attempt, row.last_step)


def _cut(connection: sa.Connection, line: SurvivingLine, row: Any) -> Any:
    """The roll-up of the steps that count, of one in which an attempt was left behind."""
    table = tables.metrics
    figures = [
        figure.label(name)
        for name, figure in zip(("num_values", "total", "low", "high"), _figures(table.c.value), strict=True)
    ]
    query = sa.select(
        *figures,
        sa.func.max(table.c.step).label("last_step"),
        sa.literal(row.attempt).label("attempt"),
        sa.literal(row.bucket).label("bucket"),
    ).where(
        table.c.job_id == line.job_id,
        table.c.key == row.key,
        table.c.attempt == row.attempt,
        table.c.step >= row.bucket * _SIZE,
        table.c.step <= line.ends[row.attempt],
    )
    return connection.execute(query).one()


def _joined_all(rows: Sequence[Any], max_points: int) -> list[MetricPoint]:
    """Roll-ups of one metric in `max_points` spans of equally many steps."""
    kept = [row for row in rows if row.last_step is not None]
    if not kept:
        return []
    first = kept[0].bucket
    size = -(-(kept[-1].bucket - first + 1) // max_points)
    spans: dict[int, list[Any]] = defaultdict(list)
    for row in kept:
        spans[(row.bucket - first) // size].append(row)
    return [_joined(spans[span]) for span in sorted(spans)]


def _joined(rows: Sequence[Any]) -> MetricPoint:
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    return _mean(
        sum(row.num_values for row in rows),
        sum(row.total for row in rows if row.total is not None),
        min(lows, default=None),
        max(highs, default=None),
        max(row.last_step for row in rows),
        rows[-1].attempt,
    )


def _at_most(points: list[MetricPoint], max_points: int) -> list[MetricPoint]:
    """Values that are no numbers are not counted before they are read, so there may be more than was reckoned with."""
    if len(points) <= max_points:
        return points
    size = -(-len(points) // max_points)
    return [_merged(points[start : start + size]) for start in range(0, len(points), size)]


def _merged(points: Sequence[MetricPoint]) -> MetricPoint:
    values = [point.value for point in points if point.value is not None]
    mean = sum(values) / len(values) if values else None
    lows = [point.low for point in points if point.low is not None]
    highs = [point.high for point in points if point.high is not None]
    last = points[-1]
    return MetricPoint(last.step, mean, min(lows, default=None), max(highs, default=None), last.attempt)


def _figures(value: Any) -> list[Any]:
    return [sa.func.count(value), sa.func.sum(value), sa.func.min(value), sa.func.max(value)]


def _mean(
    count: int, total: float | None, low: float | None, high: float | None, step: int, attempt: int
) -> MetricPoint:
    mean = total / count if count and total is not None else None
    return MetricPoint(step, mean, low, high, attempt)


def _point(row: Any) -> MetricPoint:
    return MetricPoint(row.step, row.value, row.value, row.value, row.attempt)
