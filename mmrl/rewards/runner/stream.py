"""Responses on their way through the pool: sent off while they come in, collected in their order."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.rewards.base import RewardItem
from mmrl.rewards.outcome import Outcome
from mmrl.rewards.runner.dispatcher import Job
from mmrl.rewards.runner.pool import RewardPool


@dataclass(frozen=True)
class Lane:
    """One reward of the pool: how many responses make a job of it, and the seconds for each of them."""

    batch: int
    deadline_s: float


class JobStream:
    """Cuts responses into jobs. A job goes off as soon as it is full, so the jobs are the same whether the responses
    come all at once or little by little."""

    def __init__(self, pool: RewardPool, lanes: Sequence[Lane]) -> None:
        self._pool = pool
        self._lanes = lanes
        self._jobs: list[list[Job]] = [[] for _ in lanes]
        self._open: list[list[RewardItem]] = [[] for _ in lanes]

    def add(self, items: Sequence[RewardItem]) -> None:
        """Send off what fills whole jobs; the rest waits for more."""
        for open_items in self._open:
            open_items += items
        self._submit(only_full=True)

    def flush(self) -> None:
        """Send off the rest: no more will come."""
        self._submit(only_full=False)

    def collect(self) -> list[list[Outcome]]:
        """Once flushed: the outcomes of every response, in order, for each lane."""
        outcomes = iter(self._pool.collect([job for jobs in self._jobs for job in jobs]))
        return [[outcome for _ in jobs for outcome in next(outcomes)] for jobs in self._jobs]

    def _submit(self, *, only_full: bool) -> None:
        self._pool.submit([job for source in range(len(self._lanes)) for job in self._cut(source, only_full=only_full)])

    def _cut(self, source: int, *, only_full: bool) -> list[Job]:
        lane, items = self._lanes[source], self._open[source]
        end = len(items) - len(items) % lane.batch if only_full else len(items)
        batches = [items[start : min(start + lane.batch, end)] for start in range(0, end, lane.batch)]
        self._open[source] = items[end:]
        jobs = [
            self._pool.new_job(source, pickle.dumps(batch), size=len(batch), deadline_s=lane.deadline_s * len(batch))
            for batch in batches
        ]
        self._jobs[source] += jobs
        return jobs
