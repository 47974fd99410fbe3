"""The engines as the loop sees them where they live in worker groups: the protocols of `engines.base` over calls.

The controller keeps batches without pixels; a call sends each rank its rows and puts what comes back in their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch, TokenStats
from mmrl.cluster.group import WorkerGroup
from mmrl.cluster.policy.shares import joined_rows, row_shares, sample_shares
from mmrl.cluster.policy.worker import NotFinite
from mmrl.engines.base import BeforeStep, Objective, OnGroup, RolloutStats, SamplingParams
from mmrl.types import RolloutGroup, Sample


class RemoteActor:
    """Meets `engines.base.Actor` with the ranks of a `PolicyWorker` group."""

    def __init__(self, workers: WorkerGroup) -> None:
        self._workers = workers
        self._peak: float | None = None

    @property
    def peak_flops_per_s(self) -> float:
        if self._peak is None:
            self._peak = self._workers.peak_flops_per_s() * self._workers.num_workers
        return self._peak

    def begin_step(self, step: int) -> None:
        self._workers.begin_step(step)

    def logprobs(self, batch: GroupBatch, *, with_entropy: bool = False) -> TokenStats:
        rows = row_shares(batch, self._workers.num_workers)
        parts: list[TokenStats] = self._workers.logprobs(_shares(batch, rows), with_entropy)
        logprobs = joined_rows([part.logprobs for part in parts], rows, batch.response_mask)
        if not with_entropy:
            return TokenStats(logprobs)
        entropies = [part.entropy for part in parts if part.entropy is not None]
        return TokenStats(logprobs, joined_rows(entropies, rows, batch.response_mask))

    def train_step(
        self, batch: GroupBatch, objective: Objective, *, before_step: BeforeStep | None = None
    ) -> dict[str, float]:
        """As `HfActor.train_step`; the ranks hold their gradients while `before_step` sees all logprobs."""
        rows = row_shares(batch, self._workers.num_workers)
        parts = self._workers.compute_gradients(_shares(batch, rows), objective)
        try:
            _raise_not_finite(parts, batch)
            if before_step is not None and parts[0] is not None:
                before_step(joined_rows(parts, rows, batch.response_mask))
        except BaseException:
            self._workers.discard_gradients()
            raise
        return _of_all(self._workers.apply_gradients())


class RemoteRewardTrainer(RemoteActor):
    """Meets `engines.base.RewardTrainer`."""

    def scores(self, batch: GroupBatch) -> Tensor:
        rows = row_shares(batch, self._workers.num_workers)
        scores = torch.zeros(batch.num_rows)
        for own, part in zip(rows, self._workers.scores(_shares(batch, rows)), strict=True):
            scores[own] = part.to(scores)
        return scores


class RemoteReference:
    """Meets `engines.base.ReferencePolicy`."""

    def __init__(self, workers: WorkerGroup) -> None:
        self._workers = workers

    def logprobs(self, batch: GroupBatch) -> Tensor:
        rows = row_shares(batch, self._workers.num_workers)
        return joined_rows(self._workers.reference_logprobs(_shares(batch, rows)), rows, batch.response_mask)


class RemoteCritic:
    """Meets `engines.base.Critic`."""

    def __init__(self, workers: WorkerGroup, *, value_clip: float | None) -> None:
        self._workers = workers
        self._value_clip = value_clip

    def values(self, batch: GroupBatch) -> Tensor:
        rows = row_shares(batch, self._workers.num_workers)
        return joined_rows(self._workers.values(_shares(batch, rows)), rows, batch.response_mask)

    def begin_step(self, step: int) -> None:
        self._workers.begin_critic_step(step)

    def train_step(self, batch: GroupBatch) -> dict[str, float]:
        rows = row_shares(batch, self._workers.num_workers)
        objective = ValueObjective(batch, value_clip=self._value_clip)
        parts = self._workers.train_critic(_shares(batch, rows), objective)
        _raise_not_finite(parts, batch)
        return _of_all(parts)


class RemoteRollout:
    """Meets `engines.base.Sampler` with a group that has `generate`.

    tensor_parallel: workers that share an engine; they get the same samples and give the same groups.
    """

    def __init__(self, workers: WorkerGroup, *, tensor_parallel: int, policy_version: int) -> None:
        self._workers = workers
        self._tensor_parallel = tensor_parallel
        self._last_stats: RolloutStats | None = None
        self.policy_version = policy_version

    @property
    def last_stats(self) -> RolloutStats | None:
        return self._last_stats

    def generate(
        self,
        samples: Sequence[Sample],
        params: SamplingParams,
        *,
        num_responses: int,
        seed: int,
        step: int,
        on_group: OnGroup | None = None,
        for_update: bool = False,
    ) -> list[RolloutGroup]:
        size = self._tensor_parallel
        places = sample_shares(samples, self._workers.num_workers // size)
        parts = [[samples[place] for place in own] for own in places for _ in range(size)]
        settings = {"num_responses": num_responses, "seed": seed, "step": step, "for_update": for_update}
        results = self._workers.generate(parts, params, **settings)[::size]
        groups: dict[int, RolloutGroup] = {}
        for own, (made, _) in zip(places, results, strict=True):
            # The very samples that were asked for: callers know them by identity.
            groups |= {place: replace(group, sample=samples[place]) for place, group in zip(own, made, strict=True)}
        self._last_stats = _joined_stats([stats for _, stats in results if stats is not None])
        in_order = [groups[place] for place in range(len(samples))]
        if on_group is not None:
            for group in in_order:
                on_group(group)
        return in_order

    def sleep(self) -> None:
        self._workers.sleep_rollout()

    def close(self) -> None:
        """The workers end with their executor."""


def _shares(batch: GroupBatch, rows: Sequence[Tensor]) -> list[GroupBatch]:
    return [batch.select_rows(own) for own in rows]


def _raise_not_finite(parts: Sequence[Any], batch: GroupBatch) -> None:
    """Every rank comes to the same decision, so the first one speaks for all."""
    for part in parts:
        if isinstance(part, NotFinite):
            raise part.error(batch)


def _of_all(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The metrics of a mini-batch: every rank's are of the whole of it."""
    return dict(parts[0])


def _joined_stats(parts: Sequence[RolloutStats]) -> RolloutStats | None:
    """Tokens and work of all engines together; seconds of the slowest, since they work side by side."""
    if not parts:
        return None
    values = {
        part.name: (max if part.name.endswith("_s") else sum)(getattr(stats, part.name) for stats in parts)
        for part in fields(RolloutStats)
    }
    return RolloutStats(**values)
