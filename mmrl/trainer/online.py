"""The RL loop. One step, top to bottom, is `OnlineLoop.one_step`; each stage is a method that says what it makes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mmrl.algorithms import Algorithm
from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.base import RolloutEngine, RolloutStats, SamplingParams
from mmrl.engines.reference import Reference
from mmrl.models.processing import PromptProcessor
from mmrl.rewards.metrics import reward_metrics
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.canary import Canary
from mmrl.trainer.loop import Loop
from mmrl.trainer.mean_metrics import MeanMetrics
from mmrl.trainer.stages import StageContext, UserStages
from mmrl.trainer.throughput import response_metrics, throughput_metrics
from mmrl.types import Rollout, RolloutGroup, Sample, ScoredGroup


@dataclass(frozen=True)
class UpdateBatch:
    """What an update is made from: the kept groups and, with its rows in their order, their tensor form."""

    groups: tuple[ScoredGroup, ...]
    batch: GroupBatch


class OnlineLoop(Loop):
    def __init__(
        self,
        config: RunConfig,
        *,
        prompts: PromptStream,
        processor: PromptProcessor,
        rollout: RolloutEngine,
        reference: Reference | None,
        rewards: RewardRunner,
        algorithm: Algorithm,
        stages: UserStages,
        **common: Any,
    ) -> None:
        """common: what `Loop` takes."""
        super().__init__(config, **common)
        self.prompts = prompts
        self.processor = processor
        self.rollout_engine = rollout
        self.reference_policy = reference
        self.rewards = rewards
        self.algorithm = algorithm
        self.stages = stages
        self.canary = Canary(config, self.recorder.add)
        self.scored: list[ScoredGroup] = []
        self.sampling: RolloutStats | None = None

    def one_step(self, step: int) -> None:
        """The step, stage by stage; `scored` then holds every group with its rewards and advantages."""
        context = StageContext(self.config, step)
        groups = self.rollout(self.prompts.next_batch(), context)
        scored = self.reward(groups, context)
        kept = self.filter(scored, context)
        if kept:
            update = self.make_batch(kept)
            update = self.reference(update, context)
            update = self.old_logprobs(update, context)
            update = self.advantages(update, context)
            self.update_actor(update)
            self.weight_sync(step)
            scored = with_advantages(scored, update)
        else:
            self.recorder.warn("no group is left to learn from; the update is skipped and the weights stay as they are")
        self.recorder.add({"update/skipped": float(not kept), **context.metrics})
        self.scored = scored

    def close_step(self) -> None:
        """Speed, and the step's responses with their rewards and advantages."""
        self.recorder.add(throughput_metrics(self.actor, self.sampling, self.recorder))
        self.recorder.samples("train", self.scored)

    def rollout(self, samples: Sequence[Sample], context: StageContext) -> list[RolloutGroup]:
        """group_size responses for each sample, under the current weights."""
        rollout = self.config.rollout
        params = SamplingParams(
            max_response_tokens=rollout.max_response_tokens,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            stop=rollout.stop,
        )
        with self.recorder.stage("rollout"):
            groups = self.rollout_engine.generate(
                samples,
                params,
                num_responses=self.config.algorithm.group_size,
                seed=self.config.seed,
                step=context.step,
                on_group=self.rewards.start,
            )
        self.sampling = self.rollout_engine.last_stats
        self.recorder.add(response_metrics(groups))
        return self.stages("rollout", groups, context)

    def reward(self, groups: Sequence[RolloutGroup], context: StageContext) -> list[ScoredGroup]:
        """The reward of each response, with its parts; one that failed is missing. Scoring began while sampling."""
        with self.recorder.stage("reward"):
            results = self.rewards.score(groups)
        self.recorder.add(reward_metrics([result for group in results for result in group]))
        scored = [ScoredGroup(group, tuple(rewards)) for group, rewards in zip(groups, results, strict=True)]
        return self.stages("reward", scored, context)

    def filter(self, groups: Sequence[ScoredGroup], context: StageContext) -> list[ScoredGroup]:
        """The groups and responses that the algorithm learns from."""
        with self.recorder.stage("filter"):
            kept, stats = self.algorithm.select(groups)
        self.recorder.add(stats.metrics())
        return self.stages("filter", list(kept), context)

    def make_batch(self, groups: Sequence[ScoredGroup]) -> UpdateBatch:
        """Prompts prepared (from the cache that sampling filled) and responses as padded rows."""
        prompts = [self.processor.prepare(group.group.sample) for group in groups]
        return UpdateBatch(tuple(groups), build_group_batch(prompts, [group.group.rollouts for group in groups]))

    def reference(self, update: UpdateBatch, context: StageContext) -> UpdateBatch:
        """Logprobs under the reference model, only where a KL term needs them."""
        if self.reference_policy is not None:
            with self.recorder.stage("reference"):
                logprobs = self.reference_policy.logprobs(update.batch)
            update = replace(update, batch=update.batch.with_(reference_logprobs=logprobs))
        return self.stages("reference", update, context)

    def old_logprobs(self, update: UpdateBatch, context: StageContext) -> UpdateBatch:
        """Logprobs before the update, only where more than one optimiser step follows; checks the sampler by them."""
        train = self.config.train
        if self.algorithm.needs_old_logprobs(train.mini_batches, train.epochs):
            with self.recorder.stage("old_logprobs"):
                logprobs = self.actor.logprobs(update.batch).logprobs
            self.canary.observe(update.batch, logprobs)
            self.canary.conclude()
            update = replace(update, batch=update.batch.with_(old_logprobs=logprobs))
        return self.stages("old_logprobs", update, context)

    def advantages(self, update: UpdateBatch, context: StageContext) -> UpdateBatch:
        """One advantage for each sampled token."""
        with self.recorder.stage("advantages"):
            advantages = self.algorithm.advantages(update.groups, update.batch)
        update = replace(update, batch=update.batch.with_(advantages=advantages))
        return self.stages("advantages", update, context)

    def update_actor(self, update: UpdateBatch) -> None:
        """`epochs` passes over `mini_batches` mini-batches of whole groups, an optimiser step each."""
        with self.recorder.stage("update_actor"):
            self.recorder.add(self._optimise(update.batch))

    def weight_sync(self, step: int) -> None:
        """The new weights, as version `step`, go to the rollout engine."""
        with self.recorder.stage("weight_sync"):
            self.rollout_engine.update_weights(self.actor.weights(), step)

    def _optimise(self, batch: GroupBatch) -> dict[str, float]:
        metrics = MeanMetrics()
        train = self.config.train
        mini_batches = split_prompts(batch, train.mini_batches)
        for epoch in range(train.epochs):
            for index, mini_batch in enumerate(mini_batches):
                objective = self.algorithm.objective(
                    mini_batch,
                    response_limit=self.config.rollout.max_response_tokens,
                    first_update=epoch == 0 and index == 0,
                )
                watched = batch.old_logprobs is None
                metrics.add(
                    self.actor.train_step(
                        mini_batch,
                        self.canary.watch(objective) if watched else objective,
                        before_step=self.canary.conclude if watched else None,
                    )
                )
        return metrics.means()


def split_prompts(batch: GroupBatch, parts: int) -> list[GroupBatch]:
    """Whole groups in `parts` parts whose sizes differ by at most one; fewer parts if there are fewer groups."""
    total = len(batch.prompts)
    parts = min(parts, total)
    edges = torch.linspace(0, total, parts + 1).round().long().tolist()
    return [batch.select_prompts(first, last) for first, last in itertools.pairwise(edges)]


def with_advantages(scored: Sequence[ScoredGroup], update: UpdateBatch) -> list[ScoredGroup]:
    """Every group with the mean advantage of each of its responses, None for those left out of the update."""
    assert update.batch.advantages is not None
    lengths = update.batch.response_mask.sum(-1)
    means = (update.batch.advantages.sum(-1) / lengths.clamp(min=1)).tolist()
    rollouts = [rollout for group in update.groups for rollout in group.group.rollouts]
    advantage_of = {
        _key(rollout): mean if length else None
        for rollout, mean, length in zip(rollouts, means, lengths.tolist(), strict=True)
    }
    return [
        replace(
            group,
            advantages=tuple(advantage_of.get(_key(rollout)) for rollout in group.group.rollouts),
        )
        for group in scored
    ]


def _key(rollout: Rollout) -> tuple[str, int, int]:
    """One response of a step: a sample that comes twice has responses of the same index, by other seeds."""
    return (rollout.sample_id, rollout.index, rollout.seed)
