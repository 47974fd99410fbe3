"""The RL loop. One step, top to bottom, is `OnlineLoop.one_step`; each stage is a method that says what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mmrl.algorithms import Algorithm
from mmrl.algorithms.value_loss import value_metrics
from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.base import Actor, Critic, ReferencePolicy, Sampler
from mmrl.engines.finite import check_batch
from mmrl.rewards.runner import RewardRunner
from mmrl.runs.records import TokenRecord
from mmrl.trainer.canary import Canary
from mmrl.trainer.engines import PromptMaker
from mmrl.trainer.loop import Loop
from mmrl.trainer.mean_metrics import MeanMetrics
from mmrl.trainer.mini_batches import mini_batches
from mmrl.trainer.responses import Responses
from mmrl.trainer.sampled import Sampled
from mmrl.trainer.stages import StageContext, UserStages
from mmrl.trainer.throughput import throughput_metrics
from mmrl.trainer.update_records import UpdateBatch, token_records, with_advantages
from mmrl.types import RolloutGroup, Sample, ScoredGroup


class OnlineLoop(Loop):
    actor: Actor

    def __init__(
        self,
        config: RunConfig,
        *,
        prompts: PromptStream,
        processor: PromptMaker,
        rollout: Sampler,
        reference: ReferencePolicy | None,
        critic: Critic | None,
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
        self.critic = critic
        self.responses = Responses(config, engine=rollout, rewards=rewards)
        self.algorithm = algorithm
        self.stages = stages
        self.canary = Canary(config, self.recorder.add)
        self.scored: list[ScoredGroup] = []
        self.tokens: list[list[TokenRecord]] | None = None
        self.sampled = Sampled()

    def begin_step(self, step: int) -> None:
        super().begin_step(step)
        if self.critic is not None:
            self.critic.begin_step(step)

    def one_step(self, step: int) -> None:
        """The step, stage by stage; `scored` then holds every group with its rewards and advantages."""
        context = StageContext(self.config, step)
        self.tokens = None
        scored, kept = self.sample(context)
        self.recorder.add(self.prompts.take_metrics())
        if kept:
            self.rollout_engine.sleep()
            update = self.make_batch(kept)
            update = self.reference(update, context)
            update = self.old_logprobs(update, context)
            update = self.values(update, context)
            update = self.advantages(update, context)
            check_batch(update.batch)
            self.update_critic(update)
            if self.policy_moves(step):
                self.update_actor(update)
            self.weight_sync(step)
            scored = with_advantages(scored, update)
            self.tokens = token_records(scored, update, self.canary.take_logprobs())
        else:
            self.recorder.warn("no group is left to learn from; the update is skipped and the weights stay as they are")
        self.recorder.add({"update/skipped": float(not kept), **context.metrics})
        self.scored = scored

    def close_step(self) -> None:
        """Speed, and the step's responses with their rewards and advantages."""
        self.recorder.add(throughput_metrics(self.actor, self.sampled.rollout_stats, self.recorder))
        self.recorder.samples("train", self.scored, self.tokens)

    def policy_moves(self, step: int) -> bool:
        """Whether the policy is updated in this step; in the first ones of some runs only the critic is."""
        return step > self.config.critic_warmup_steps

    def sample(self, context: StageContext) -> tuple[list[ScoredGroup], list[ScoredGroup]]:
        """Every group that was sampled, and those to learn from. Where the algorithm asks for it, more prompts are
        sampled in place of dropped ones, in a bounded number of rounds."""
        wanted, rounds = self.config.rollout.prompts_per_step, self.config.algorithm.sampling_rounds
        self.sampled = Sampled()
        scored: list[ScoredGroup] = []
        kept: list[ScoredGroup] = []
        try:
            while len(kept) < wanted and self.sampled.num_rounds < rounds:
                samples = self.prompts.next_batch(wanted - len(kept))
                self.sampled.num_extra_prompts += len(samples) if scored else 0
                more = self.reward(self.rollout(samples, context), context)
                scored += more
                kept += self.filter(more, context)
                self.sampled.num_rounds += 1
        finally:
            self.recorder.add(self.sampled.metrics())
        if 0 < len(kept) < wanted and rounds > 1:
            self.recorder.warn(
                f"after {rounds} rounds of sampling only {len(kept)} of {wanted} groups have something to learn from; "
                "the update goes on with these"
            )
        return scored, kept

    def rollout(self, samples: Sequence[Sample], context: StageContext) -> list[RolloutGroup]:
        """group_size responses for each sample, under the current weights."""
        with self.recorder.stage("rollout"):
            groups = self.responses.sample(samples, self.sampled, step=context.step)
        self.sampled.groups += groups
        return self.stages("rollout", groups, context)

    def reward(self, groups: Sequence[RolloutGroup], context: StageContext) -> list[ScoredGroup]:
        """The reward of each response, with its parts; one that failed is missing. Scoring began while sampling."""
        with self.recorder.stage("reward"):
            scored = self.responses.score(groups, self.sampled)
        return self.stages("reward", scored, context)

    def filter(self, groups: Sequence[ScoredGroup], context: StageContext) -> list[ScoredGroup]:
        """The groups and responses that the algorithm learns from."""
        with self.recorder.stage("filter"):
            kept, stats = self.algorithm.select(groups)
        self.sampled.selections.append(stats)
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
        """Logprobs before the update, only where another number of optimiser steps than one follows, or where they
        decide which tokens learn; checks the sampler by them."""
        train = self.config.train
        needed = self.algorithm.needs_old_logprobs(train.mini_batches, train.epochs)
        if needed or not self.policy_moves(context.step):
            with self.recorder.stage("old_logprobs"):
                stats = self.actor.logprobs(update.batch, with_entropy=self.algorithm.needs_old_entropy)
            self.canary.check(update.batch, stats.logprobs)
            batch = update.batch.with_(old_logprobs=stats.logprobs, old_entropy=stats.entropy)
            update = replace(update, batch=batch)
        return self.stages("old_logprobs", update, context)

    def values(self, update: UpdateBatch, context: StageContext) -> UpdateBatch:
        """What the critic expects before each token, only where there is one."""
        if self.critic is not None:
            with self.recorder.stage("values"):
                update = replace(update, batch=update.batch.with_(values=self.critic.values(update.batch)))
        return self.stages("values", update, context)

    def advantages(self, update: UpdateBatch, context: StageContext) -> UpdateBatch:
        """One advantage for each sampled token, and the returns that a critic learns."""
        with self.recorder.stage("advantages"):
            update = replace(update, batch=self.algorithm.complete(update.groups, update.batch))
        return self.stages("advantages", update, context)

    def update_critic(self, update: UpdateBatch) -> None:
        """The same mini-batches as the actor's, an optimiser step of the critic each; only where there is one."""
        if self.critic is None:
            return
        metrics = MeanMetrics("critic")
        with self.recorder.stage("update_critic"):
            for mini_batch, _ in mini_batches(update.batch, self.config.train):
                metrics.add(self.critic.train_step(mini_batch))
        self.recorder.add(metrics.means() | value_metrics(update.batch))

    def update_actor(self, update: UpdateBatch) -> None:
        """`epochs` passes over `mini_batches` mini-batches of whole groups, an optimiser step each."""
        with self.recorder.stage("update_actor"):
            batch, metrics = self.algorithm.prepare_update(update.batch)
            metrics |= self._optimise(batch)
            metrics |= self.algorithm.observe(metrics, num_responses=batch.num_rows)
        self.recorder.add(metrics)

    def weight_sync(self, step: int) -> None:
        """The weights, as version `step`, go to the rollout engine; also where none has moved, since an engine may have
        given its own away while the others worked."""
        with self.recorder.stage("weight_sync"):
            self.sync(step)

    def _optimise(self, batch: GroupBatch) -> dict[str, float]:
        metrics = MeanMetrics()
        watched = batch.old_logprobs is None
        for mini_batch, is_first in mini_batches(batch, self.config.train):
            objective = self.algorithm.objective(
                mini_batch, response_limit=self.config.rollout.max_response_tokens, first_update=is_first
            )
            check = partial(self.canary.check, mini_batch) if watched else None
            metrics.add(self.actor.train_step(mini_batch, objective, before_step=check))
        return metrics.means()
