"""Evaluation on held-out data: the same rollout engine and rewards, without an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from mmrl.config.evaluation import AnswerConfig, EvalConfig
from mmrl.config.reward import RewardConfig
from mmrl.config.rollout import RolloutConfig
from mmrl.engines.base import Sampler, SamplingParams
from mmrl.evaluation.outcomes import PromptOutcome, deciding_part, outcome_of
from mmrl.evaluation.progress import AnswerCount
from mmrl.evaluation.summary import Summary, summarise
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.recorder import Recorder
from mmrl.types import RolloutGroup, Sample, ScoredGroup

EVALUATION_STEP = -1
"""The step in the seed of evaluation: every evaluation of a run samples with the same seeds."""


@dataclass(frozen=True)
class Evaluator:
    samples: Sequence[Sample]
    rollout: Sampler
    rewards: RewardRunner
    reward_configs: Sequence[RewardConfig]
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
            answers = answer_all(
                self.samples,
                self.rollout,
                self.rewards,
                self.config,
                max_response_tokens=self.rollout_config.max_response_tokens,
                stop=self.rollout_config.stop,
                seed=self.seed,
            )
        grading = Grading.of(self.config, self.reward_configs, answers.groups)
        self.recorder.add(evaluation_metrics(answers.groups))
        self.recorder.add(_success_metrics(grading.summary(answers.groups, self.config.ks), "eval/"))
        self.recorder.samples("eval", answers.groups)
        if answers.greedy:
            self.recorder.add(_success_metrics(grading.summary(answers.greedy, ()), "eval/greedy/"))
            self.recorder.samples("eval-greedy", answers.greedy)


@dataclass(frozen=True)
class Answers:
    """groups: every prompt with its responses, in order. greedy: the same with the greedy response alone, where asked
    for beside sampled ones."""

    groups: list[ScoredGroup]
    greedy: list[ScoredGroup]


@dataclass(frozen=True)
class Grading:
    """part: the reward that says whether a response is right, None without rewards. at_least: its value from there."""

    part: str | None
    at_least: float

    @classmethod
    def of(cls, config: AnswerConfig, rewards: Sequence[RewardConfig], groups: Sequence[ScoredGroup]) -> Grading:
        """By the config; the names of all rewards, also of functions passed from Python, are those in the results."""
        results = [result for group in groups for result in group.rewards]
        names = [part.name for part in results[0].parts] if results else []
        shaping = [reward.part_name for reward in rewards if reward.shaping or not reward.judges_answer]
        scores = [reward.part_name for reward in rewards if reward.has_open_scale]
        part = deciding_part(names, config.correct, shaping=shaping, scores=scores)
        return cls(part, config.correct.at_least)

    def outcomes(self, groups: Sequence[ScoredGroup]) -> list[PromptOutcome]:
        return [outcome_of(group, part=self.part, at_least=self.at_least) for group in groups]

    def summary(self, groups: Sequence[ScoredGroup], ks: Sequence[int]) -> Summary:
        return summarise(self.outcomes(groups), ks=ks)


def answer_all(
    samples: Sequence[Sample],
    rollout: Sampler,
    rewards: RewardRunner,
    config: AnswerConfig,
    *,
    max_response_tokens: int,
    stop: tuple[str, ...] = (),
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Answers:
    """Every sample answered as `config` says, and scored. say: told how far it is."""

    def ask(temperature: float, num_responses: int) -> list[ScoredGroup]:
        return answer(
            samples,
            rollout,
            rewards,
            max_response_tokens=max_response_tokens,
            stop=stop,
            temperature=temperature,
            top_p=config.top_p if temperature else 1.0,
            top_k=config.top_k if temperature else 0,
            num_responses=num_responses,
            seed=seed,
            say=say,
        )

    groups = ask(config.temperature, config.samples_per_prompt)
    return Answers(groups, ask(0.0, 1) if config.greedy and config.temperature > 0 else [])


def answer(
    samples: Sequence[Sample],
    rollout: Sampler,
    rewards: RewardRunner,
    *,
    max_response_tokens: int,
    stop: tuple[str, ...] = (),
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    num_responses: int = 1,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> list[ScoredGroup]:
    """Every sample answered `num_responses` times and scored; in order, none left out. say: told how far it is."""
    count = AnswerCount(len(samples), say or (lambda text: None))

    def begin(group: RolloutGroup) -> None:
        rewards.start(group)
        count.add()

    params = SamplingParams(max_response_tokens, temperature, top_p, top_k, stop)
    groups = rollout.generate(
        samples, params, num_responses=num_responses, seed=seed, step=EVALUATION_STEP, on_group=begin
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


def _success_metrics(summary: Summary, prefix: str) -> dict[str, float]:
    """What `evaluation_metrics` does not say: accuracy with its interval, pass@k, maj@k, and the same by source."""
    own = {f"{prefix}{name}" for name in ("length", "truncated")}
    if prefix == "eval/":
        own.add("eval/reward")  # over responses there, over prompts here: the same unless one failed
    return {name: value for name, value in summary.flat(prefix).items() if name not in own}
