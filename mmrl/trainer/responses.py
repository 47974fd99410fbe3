"""What a step asks of the rollout engine, and of the rewards: responses, and greedy ones beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mmrl.config import RunConfig
from mmrl.engines.base import Sampler, SamplingParams
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.sampled import Sampled
from mmrl.types import RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup

_ROUND = 2**64
"""Lies between the seeds of two rounds, and so beyond every seed of a run: a sample that comes again in a later round
of a step gets other responses."""


class Responses:
    """Responses with their rewards; what comes is noted in the `Sampled` of the step."""

    def __init__(self, config: RunConfig, *, engine: Sampler, rewards: RewardRunner) -> None:
        rollout = config.rollout
        self._config = config
        self._engine = engine
        self._rewards = rewards
        self._params = SamplingParams(
            max_response_tokens=rollout.max_response_tokens,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            stop=rollout.stop,
        )

    def sample(self, samples: Sequence[Sample], sampled: Sampled, *, step: int) -> list[RolloutGroup]:
        """`group_size` responses for each sample, and the greedy one where the algorithm compares with it. Scoring
        begins while others are still sampled."""
        greedy = self._greedy(samples, sampled, step=step) if self._config.algorithm.samples_greedy else {}
        ready: dict[int, RolloutGroup] = {}

        def begin(group: RolloutGroup) -> None:
            whole = replace(group, greedy=greedy[id(group.sample)]) if greedy else group
            ready[id(group)] = whole
            self._rewards.start(whole)

        groups = self._engine.generate(
            samples,
            self._params,
            num_responses=self._config.algorithm.group_size,
            seed=self._config.seed + sampled.num_rounds * _ROUND,
            step=step,
            on_group=begin,
            for_update=True,
        )
        self._note(sampled)
        return [ready[id(group)] for group in groups]

    def score(self, groups: Sequence[RolloutGroup], sampled: Sampled) -> list[ScoredGroup]:
        """The reward of each response, with its parts; one that failed is missing."""
        greedy = [RolloutGroup(group.sample, (group.greedy,)) for group in groups if group.greedy is not None]
        results = self._rewards.score([*groups, *greedy])
        own, of_greedy = results[: len(groups)], iter(results[len(groups) :])
        sampled.results += [result for group in own for result in group]
        scored = []
        for group, rewards in zip(groups, own, strict=True):
            base: RewardResult | None = None if group.greedy is None else next(of_greedy)[0]
            scored.append(ScoredGroup(group, tuple(rewards), greedy_reward=base))
        sampled.greedy += [group.greedy_reward for group in scored if group.greedy_reward is not None]
        return scored

    def _greedy(self, samples: Sequence[Sample], sampled: Sampled, *, step: int) -> dict[int, Rollout]:
        params = replace(self._params, temperature=0.0, top_p=1.0, top_k=0)
        groups = self._engine.generate(samples, params, num_responses=1, seed=self._config.seed, step=step)
        self._note(sampled)
        return {id(group.sample): group.rollouts[0] for group in groups}

    def _note(self, sampled: Sampled) -> None:
        if self._engine.last_stats is not None:
            sampled.rollouts.append(self._engine.last_stats)
