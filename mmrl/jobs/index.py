"""What a worker writes into the database about a run as its directory grows, guarded by its lease."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.ids import new_id
from mmrl.jobs.index_batch import RUN_ACTOR, IndexBatch, num_history
from mmrl.jobs.index_reads import read_checkpoints
from mmrl.jobs.metric_writes import MetricRow, insert_into, upsert, write_metrics
from mmrl.jobs.records import CheckpointRow, Job, Lease, ShardRow
from mmrl.jobs.states import HELD
from mmrl.jobs.transitions import add_event, lock_job


class RunIndex:
    """Guarded writes of metrics, samples and checkpoints. Writing the same rows again changes nothing."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def index(self, lease: Lease, batch: IndexBatch) -> None:
        """All of the batch or nothing. Raises LeaseLostError."""
        with self.database.transaction(durable=False) as connection:
            self._check(connection, lease)
            write_metrics(connection, lease.job_id, lease.attempt, batch.metrics)
            self._add_shards(connection, lease, batch.shards, batch.replaces)
            self._add_checkpoints(connection, lease, batch.checkpoints)
            self._add_history(connection, lease, batch.history, batch.history_from)
            self._set_progress(connection, lease, batch)

    def add_metrics(self, lease: Lease, rows: Iterable[MetricRow]) -> None:
        """Adds metrics and brings the roll-ups of their steps up to date."""
        self.index(lease, IndexBatch(metrics=tuple(rows)))

    def add_shards(self, lease: Lease, shards: Sequence[ShardRow], *, replaces: Sequence[ShardRow] = ()) -> None:
        """Adds shards of samples. replaces: small ones that a compacted one stands for, taken out in the same step."""
        self.index(lease, IndexBatch(shards=shards, replaces=replaces))

    def add_checkpoints(self, lease: Lease, checkpoints: Sequence[CheckpointRow]) -> None:
        """Adds checkpoints, or tells their new state (complete, deleted)."""
        self.index(lease, IndexBatch(checkpoints=checkpoints))

    def known_checkpoints(self, lease: Lease) -> list[CheckpointRow]:
        """The job's checkpoints that are there, whichever attempt wrote them."""
        with self.database.reading() as connection:
            return [row for row in read_checkpoints(connection, lease.job_id) if row.state == "complete"]

    def _add_shards(
        self, connection: sa.Connection, lease: Lease, shards: Sequence[ShardRow], replaces: Sequence[ShardRow]
    ) -> None:
        """What is replaced leaves the index, or does not even enter it."""
        table = tables.sample_shards
        gone = {(shard.split, shard.step_lo) for shard in replaces}
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
            if shard not in replaces
        ]
        for split, step in sorted(gone):
            mine = table.delete().where(table.c.job_id == lease.job_id, table.c.attempt == lease.attempt)
            connection.execute(mine.where(table.c.split == split, table.c.step_lo == step))
        if rows:
            upsert(connection, table, rows)

    def _add_checkpoints(self, connection: sa.Connection, lease: Lease, checkpoints: Sequence[CheckpointRow]) -> None:
        table = tables.checkpoints
        now = self.database.now(connection) if checkpoints else 0.0
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

    def _add_history(
        self, connection: sa.Connection, lease: Lease, events: Sequence[Mapping[str, Any]], first: int
    ) -> None:
        """first: the number of the first of `events` among the attempt's; what is there already is passed over."""
        if not events:
            return
        num_known = num_history(connection, lease.job_id, lease.attempt)
        for event in events[max(0, num_known - first) :]:
            payload = {key: value for key, value in event.items() if key != "kind"}
            cause = str(event["kind"])
            add_event(connection, lease.job_id, lease.attempt, cause, RUN_ACTOR, payload=payload)

    def _set_progress(self, connection: sa.Connection, lease: Lease, batch: IndexBatch) -> None:
        jobs, attempts = tables.jobs, tables.attempts
        told = {"step": batch.step, "total_steps": batch.total_steps}
        values = {name: value for name, value in told.items() if value is not None}
        if values:
            connection.execute(jobs.update().where(jobs.c.id == lease.job_id).values(values))
        if batch.first_step is not None:
            mine = attempts.update().where(attempts.c.job_id == lease.job_id, attempts.c.attempt == lease.attempt)
            connection.execute(mine.values(first_step=batch.first_step))

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
        return insert_into(self.database.dialect, table)
