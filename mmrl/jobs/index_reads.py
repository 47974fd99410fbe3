"""What the index knows of a run beside its metrics: checkpoints and shards of samples.

Where a run was resumed, rows of an earlier attempt beyond the step that the next one went on from do not count.
"""

from __future__ import annotations

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.metric_reads import SurvivingLine
from mmrl.jobs.records import CheckpointRow, ShardRow
from mmrl.jobs.rows import to_checkpoint, to_shard


def read_checkpoints(connection: sa.Connection, job_id: str) -> list[CheckpointRow]:
    """Checkpoints that are complete, by step; of two of the same step the later attempt's."""
    table = tables.checkpoints
    query = sa.select(table).where(table.c.job_id == job_id, table.c.state == "complete")
    rows = connection.execute(query.order_by(table.c.step, table.c.attempt))
    line = SurvivingLine.of(connection, job_id)
    by_step = {row.step: to_checkpoint(row) for row in rows if line.holds(row.attempt, row.step)}
    return list(by_step.values())


def read_shards(connection: sa.Connection, job_id: str) -> list[ShardRow]:
    """Shards that hold at least one step that counts, by split and step."""
    table = tables.sample_shards
    query = sa.select(table).where(table.c.job_id == job_id)
    rows = connection.execute(query.order_by(table.c.split, table.c.step_lo, table.c.attempt))
    line = SurvivingLine.of(connection, job_id)
    return [to_shard(row) for row in rows if line.holds(row.attempt, row.step_lo)]
