"""What is checked before a run begins, and what `mmrl run CONFIG --dry-run` prints. Writes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmrl.algorithms import build_algorithm
from mmrl.config import RunConfig
from mmrl.config.run import DataConfig
from mmrl.data import load_dataset
from mmrl.errors import ConfigError, DataError
from mmrl.models.processing import PromptProcessor
from mmrl.rewards.registry import build_reward
from mmrl.trainer.stages import UserStages
from mmrl.trainer.targets import has_target, prompt_only
from mmrl.types import Sample


@dataclass(frozen=True)
class RunData:
    """The training samples (with targets, for SFT) and the held-out prompts; `held_out` may be empty."""

    train: Sequence[Sample]
    held_out: Sequence[Sample]


@dataclass(frozen=True)
class PreflightReport:
    """Facts of a run before it starts. Token counts are taken after images are expanded."""

    train_samples: int
    eval_samples: int
    samples_per_step: int
    responses_per_step: int
    optimiser_steps: int
    data_epochs: float
    prompt_tokens_min: int
    prompt_tokens_max: int
    prompt_tokens_mean: float
    share_over_limit: float
    on_overlong: str
    parameters: int
    trainable_parameters: int
    weights_and_optimiser_bytes: int

    @property
    def lines(self) -> list[str]:
        return [
            f"data: {self.train_samples} training samples, {self.eval_samples} held out",
            f"prompts: {self.prompt_tokens_min} to {self.prompt_tokens_max} tokens with images expanded, "
            f"mean {self.prompt_tokens_mean:.0f}; {self.share_over_limit:.1%} over the limit ({self.on_overlong})",
            f"batch: {self.samples_per_step} prompts and {self.responses_per_step} responses a step, "
            f"{self.optimiser_steps} optimiser steps in all, {self.data_epochs:.2f} passes over the data",
            f"model: {self.parameters:,} parameters, {self.trainable_parameters:,} trained; "
            f"weights, gradients and optimiser take {self.weights_and_optimiser_bytes / 2**30:.2f} GiB",
        ]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def load_data(config: RunConfig) -> RunData:
    """Reads training and held-out data. A missing data set is a NotFoundError."""
    train = load_dataset(config.data.train)
    samples = [prompt_only(sample) for sample in train] if config.kind == "rl" else list(train)
    held_out: list[Sample] = []
    if config.data.eval is not None:
        held_out = [prompt_only(sample) for sample in load_dataset(config.data.eval, limit=config.eval.max_samples)]
    return RunData(samples, held_out)


def check_data(config: RunConfig, data: RunData) -> None:
    """Refuses data that cannot fill one batch and, for SFT, rows that have nothing to learn."""
    key, needed = _batch_size(config)
    if len(data.train) < needed:
        raise DataError(
            f"data.train: {config.data.train} has {len(data.train)} samples, fewer than one batch of {needed} ({key}); "
            f"set {key} to at most {len(data.train)} or give more data"
        )
    lacking = [sample.id for sample in data.train if not has_target(sample)] if config.kind == "sft" else []
    if lacking:
        raise DataError(
            f"data.train: {len(lacking)} of {len(data.train)} samples of {config.data.train} have no text to learn "
            f"(first: {', '.join(lacking[:3])}); kind 'sft' needs an assistant turn at the end or an answer"
        )


def check_rewards(config: RunConfig, functions: Sequence[Callable[..., Any]] = ()) -> None:
    """RL needs something to learn from, in the config or passed from Python."""
    if config.kind == "rl" and not config.reward and not functions:
        raise ConfigError(
            "reward: kind 'rl' needs at least one reward (got none), such as `reward: [{type: exact}]`, "
            "or a function passed to `train`"
        )


def preflight(config: RunConfig) -> PreflightReport:
    """Reads the data and the model and counts; raises the error that the run would end with."""
    from mmrl.data.images import ImageStore
    from mmrl.models.policy import load_policy

    check_rewards(config)
    build_algorithm(config.algorithm)
    UserStages(config.stages)
    for reward in config.reward:
        build_reward(reward)
    data = load_data(config)
    check_data(config, data)
    policy = load_policy(config.model, config.data.image, store=ImageStore())
    lengths = [policy.prompts.num_tokens(prompt_only(sample)) for sample in data.train]
    train = fit_prompts(data.train, policy.prompts, config.data, what="data.train")
    held_out = fit_prompts(data.held_out, policy.prompts, config.data, what="data.eval")
    check_data(config, RunData(train, held_out))
    _, batch_size = _batch_size(config)
    parameters = list(policy.parameters())
    total = sum(parameter.numel() for parameter in parameters)
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    is_rl = config.kind == "rl"
    return PreflightReport(
        train_samples=len(train),
        eval_samples=len(held_out),
        samples_per_step=batch_size,
        responses_per_step=batch_size * (config.algorithm.group_size if is_rl else 1),
        optimiser_steps=config.train.steps * (config.train.mini_batches * config.train.epochs if is_rl else 1),
        data_epochs=config.train.steps * batch_size / len(train),
        prompt_tokens_min=min(lengths),
        prompt_tokens_max=max(lengths),
        prompt_tokens_mean=math.fsum(lengths) / len(lengths),
        share_over_limit=sum(length > config.data.max_prompt_tokens for length in lengths) / len(lengths),
        on_overlong=config.data.on_overlong,
        parameters=total,
        trainable_parameters=trained,
        weights_and_optimiser_bytes=4 * total + 12 * trained,
    )


def fit_prompts(
    samples: Sequence[Sample],
    processor: PromptProcessor,
    config: DataConfig,
    *,
    what: str,
    say: Callable[[str], None] = lambda text: None,
) -> list[Sample]:
    """The samples whose prompts fit `max_prompt_tokens`; longer ones are treated as `on_overlong` says.

    Raises DataError where the policy is `error`, or where nothing is left.
    """
    limit = config.max_prompt_tokens
    lengths = [_num_tokens(processor, sample, what) for sample in samples]
    num_long = sum(length > limit for length in lengths)
    if not num_long:
        return list(samples)
    longest = max(lengths)
    if config.on_overlong == "error":
        worst = samples[lengths.index(longest)]
        raise DataError(
            f"{what}: {num_long} of {len(samples)} prompts are longer than data.max_prompt_tokens {limit} with their "
            f"images expanded; the longest has {longest} tokens (sample {worst.id}); raise the limit, lower "
            "data.image.max_pixels, or set data.on_overlong to drop or resize"
        )
    resize = config.on_overlong == "resize"
    fitted = [
        sample if length <= limit else processor.fit(sample, limit) if resize else None
        for sample, length in zip(samples, lengths, strict=True)
    ]
    kept = [sample for sample in fitted if sample is not None]
    if not kept:
        raise DataError(
            f"{what}: all {len(samples)} prompts are longer than data.max_prompt_tokens {limit} with their images "
            f"expanded (the shortest has {min(lengths)} tokens); raise the limit or lower data.image.max_pixels"
        )
    num_dropped = len(samples) - len(kept)
    say(
        f"{what}: {num_long} of {len(samples)} prompts are over {limit} tokens (longest {longest}): "
        f"{num_long - num_dropped} with smaller images, {num_dropped} left out"
    )
    return kept


def _num_tokens(processor: PromptProcessor, sample: Sample, what: str) -> int:
    try:
        return processor.num_tokens(prompt_only(sample))
    except DataError as error:
        raise DataError(f"{what}: sample {sample.id}: {error}") from error


def _batch_size(config: RunConfig) -> tuple[str, int]:
    if config.kind == "rl":
        return "rollout.prompts_per_step", config.rollout.prompts_per_step
    return "sft.batch_size", config.sft.batch_size
