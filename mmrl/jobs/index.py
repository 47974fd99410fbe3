"""What a worker writes into the database about a run as its directory grows, guarded by its lease."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.ids import new_id
from mmrl.jobs.records import CheckpointRow, Job, Lease, ShardRow
from mmrl.jobs.states import HELD
from mmrl.jobs.transitions import lock_job

MetricRow = tuple[int, str, float | None]
"""(step, key, value); None where the value was no finite number."""


class RunIndex:
    """Guarded writes of metrics, samples and checkpoints. Writing the same rows again changes nothing."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def add_metrics(self, lease: Lease, rows: Iterable[MetricRow]) -> None:
        """Adds metrics and brings the roll-ups of their steps up to date."""
        found = {(key, step): value for step, key, value in rows}
        if not found:
            return
        table = tables.metrics
        values = [
            {"job_id": lease.job_id, "attempt": lease.attempt, "step": step, "key": key, "value": _finite(value)}
            for (key, step), value in sorted(found.items())
        ]
        with self.database.transaction() as connection:
            self._check(connection, lease)
            connection.execute(self._insert(table).on_conflict_do_nothing(), values)
            self._roll_up(connection, lease, sorted({key for key, _ in found}), [step for _, step in found])

    def add_shards(self, lease: Lease, shards: Sequence[ShardRow], *, replaces: Sequence[ShardRow] = ()) -> None:
        """Adds shards of samples. replaces: small ones that a compacted one stands for, taken out in the same step."""
        table = tables.sample_shards
        rows = [
            {
                "job_id": lease.job_id,
                "attempt": lease.attempt,
                "split": shard.split,
                "step_lo": shard.step_lo,
                "step_hi": shard.step_hi,
                "uri": shard.uri,
                "rows": shard.num_rows,
                "bytes": shard.num_bytes,
                "sha256": shard.sha256,
            }
            for shard in shards
        ]
        with self.database.transaction() as connection:
            self._check(connection, lease)
            for shard in replaces:
                gone = table.delete().where(
                    table.c.job_id == lease.job_id,
                    table.c.split == shard.split,
                    table.c.step_lo == shard.step_lo,
                    table.c.attempt == (shard.attempt or lease.attempt),
                )
                connection.execute(gone)
            if rows:
                self._upsert(connection, table, rows)

    def add_checkpoints(self, lease: Lease, checkpoints: Sequence[CheckpointRow]) -> None:
        """Adds checkpoints, or tells their new state (complete, deleted)."""
        table = tables.checkpoints
        with self.database.transaction() as connection:
            self._check(connection, lease)
            now = self.database.now(connection)
            for checkpoint in checkpoints:
                row = {
                    "id": new_id(now),
                    "job_id": lease.job_id,
                    "attempt": checkpoint.attempt or lease.attempt,
                    "step": checkpoint.step,
                    "uri": checkpoint.uri,
                    "manifest_sha256": checkpoint.manifest_sha256,
                    "bytes": checkpoint.num_bytes,
                    "state": checkpoint.state,
                    "metrics": dict(checkpoint.metrics),
                    "created_at": now,
                }
                insert = self._insert(table).values(row)
                new = {name: insert.excluded[name] for name in ("uri", "manifest_sha256", "bytes", "state", "metrics")}
                key = ["job_id", "step", "attempt"]
                connection.execute(insert.on_conflict_do_update(index_elements=key, set_=new))

    def _check(self, connection: sa.Connection, lease: Lease) -> None:
        """Locks the job's row. Raises LeaseLostError unless the lease holds."""
        standing = lock_job(connection, lease.job_id)
        key = (lease.worker_id, lease.lease_epoch)
        if standing is None or (standing.worker_id, standing.lease_epoch) != key or standing.state not in HELD:
            raise self._lost(lease, "be written about")

    def _lost(self, held: Lease | Job, what: str) -> LeaseLostError:
        job_id = held.job_id if isinstance(held, Lease) else held.id
        return LeaseLostError(
            f"job {job_id} cannot {what}: epoch {held.lease_epoch} of it is not this worker's any more, or it is in "
            "another state by now; nothing was written"
        )

    def _insert(self, table: sa.Table) -> Any:
        return (postgresql if self.database.dialect == "postgresql" else sqlite).insert(table)

    def _upsert(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        insert = self._insert(table)
        keys = [column.name for column in table.primary_key]
        new = {column.name: insert.excluded[column.name] for column in table.c if column.name not in keys}
        connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=new), list(rows))

    def _roll_up(self, connection: sa.Connection, lease: Lease, keys: Sequence[str], steps: Sequence[int]) -> None:
        """Computes the buckets that the steps fall into from the rows themselves, so that it may be done twice."""
        table, rollups, size = tables.metrics, tables.metric_rollups, tables.ROLLUP_STEPS
        first, last = min(steps) // size, max(steps) // size
        bucket = (table.c.step - table.c.step % size) / size
        source = (
            sa.select(
                table.c.job_id,
                table.c.key,
                sa.cast(bucket, sa.Integer).label("bucket"),
                table.c.attempt,
                sa.func.count(table.c.value),
                sa.func.sum(table.c.value),
                sa.func.min(table.c.value),
                sa.func.max(table.c.value),
                sa.func.max(table.c.step),
            )
            .where(
                table.c.job_id == lease.job_id,
                table.c.key.in_(keys),
                table.c.step >= first * size,
                table.c.step < (last + 1) * size,
                table.c.attempt == lease.attempt,
            )
            .group_by(table.c.job_id, table.c.key, sa.text("bucket"), table.c.attempt)
        )
        names = ["job_id", "key", "bucket", "attempt", "num_values", "total", "low", "high", "last_step"]
        insert = self._insert(rollups).from_select(names, source)
        new = {name: insert.excluded[name] for name in names[4:]}
        connection.execute(insert.on_conflict_do_update(index_elements=names[:4], set_=new))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
