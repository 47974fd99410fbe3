"""Everything that one look into a run directory found, written in one guarded transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.records import CheckpointRow, ShardRow

RUN_ACTOR = "run"
"""Who speaks in the lines of a job's history that its run wrote."""


@dataclass(frozen=True)
class IndexBatch:
    """metrics: (step, key, value), a later value of the same step and key winning; None was no finite number.

    replaces: shards that a new one stands for. history: events of the run directory, from number `history_from` of the
    attempt on, so that one is written once however often it is given. step: None leaves the job's as it is.
    """

    metrics: Sequence[tuple[int, str, float | None]] = ()
    shards: Sequence[ShardRow] = ()
    replaces: Sequence[ShardRow] = ()
    checkpoints: Sequence[CheckpointRow] = ()
    history: Sequence[Mapping[str, Any]] = ()
    history_from: int = 0
    step: int | None = None
    total_steps: int | None = None
    first_step: int | None = None

    @property
    def is_empty(self) -> bool:
        lists = (self.metrics, self.shards, self.replaces, self.checkpoints, self.history)
        return self.step is None and not any(lists)


def num_history(connection: sa.Connection, job_id: str, attempt: int) -> int:
    """How many events of the attempt's run directory are in the job's history."""
    table = tables.job_events
    query = sa.select(sa.func.count()).where(
        table.c.job_id == job_id, table.c.attempt == attempt, table.c.actor == RUN_ACTOR
    )
    return int(connection.execute(query).scalar_one())
