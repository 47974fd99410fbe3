"""Evaluation on held-out data: the same rollout engine and rewards, without an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import EvalConfig
from mmrl.engines.base import Sampler, SamplingParams
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.recorder import Recorder
from mmrl.types import Sample, ScoredGroup

EVALUATION_STEP = -1
"""The step in the seed of evaluation: every evaluation of a run samples with the same seeds."""


@dataclass(frozen=True)
class Evaluator:
    samples: Sequence[Sample]
    rollout: Sampler
    rewards: RewardRunner
    config: EvalConfig
    rollout_config: RolloutConfig
    seed: int
    total_steps: int
    recorder: Recorder

    def evaluate_if_due(self, step: int) -> None:
        if self.is_due(step):
            self.evaluate()

    def is_due(self, step: int) -> bool:
        return step == self.total_steps or (self.config.every > 0 and step % self.config.every == 0)

    def evaluate(self) -> None:
        """Answers the held-out data and records `eval/...` metrics and the responses; nothing if there is no data."""
        if not self.samples:
            return
        with self.recorder.stage("evaluation"):
            groups = answer(
                self.samples,
                self.rollout,
                self.rewards,
                max_response_tokens=self.rollout_config.max_response_tokens,
                stop=self.rollout_config.stop,
                temperature=self.config.temperature,
                num_responses=self.config.samples_per_prompt,
                seed=self.seed,
            )
        self.recorder.add(evaluation_metrics(groups))
        self.recorder.samples("eval", groups)


def answer(
    samples: Sequence[Sample],
    rollout: Sampler,
    rewards: RewardRunner,
    *,
    max_response_tokens: int,
    stop: tuple[str, ...] = (),
    temperature: float = 0.0,
    num_responses: int = 1,
    seed: int = 0,
) -> list[ScoredGroup]:
    """Every sample answered `num_responses` times and scored; in order, none left out."""
    params = SamplingParams(max_response_tokens=max_response_tokens, temperature=temperature, stop=stop)
    groups = rollout.generate(
        samples, params, num_responses=num_responses, seed=seed, step=EVALUATION_STEP, on_group=rewards.start
    )
    results = rewards.score(groups, normalised=False)
    return [ScoredGroup(group, tuple(rewards)) for group, rewards in zip(groups, results, strict=True)]


def evaluation_metrics(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """`eval/reward`, `eval/<part>`, lengths, and `eval/missing` responses that no reward could score."""
    results = [result for group in groups for result in group.rewards]
    rollouts = [rollout for group in groups for rollout in group.group.rollouts]
    values = {
        "eval/num_samples": float(len(groups)),
        "eval/missing": float(sum(result.total is None for result in results)),
        "eval/length_mean": fmean(sum(rollout.response_mask) for rollout in rollouts),
        "eval/truncated_share": fmean(float(rollout.is_truncated) for rollout in rollouts),
    }
    totals = [result.total for result in results if result.total is not None]
    if totals:
        values["eval/reward"] = fmean(totals)
    names = {part.name for result in results for part in result.parts}
    for name in sorted(names):
        parts = [part.value for result in results for part in result.parts if part.name == name]
        scored = [value for value in parts if value is not None]
        if scored:
            values[f"eval/{name}"] = fmean(scored)
    return values
