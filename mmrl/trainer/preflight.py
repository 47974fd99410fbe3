"""What is checked before a run begins, and what `mmrl run CONFIG --dry-run` prints. Writes nothing.

A dry run needs no weights: lengths come from the processor, sizes from the model's skeleton. A run makes the same
report from the parts that it has built, just before its first step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mmrl.config import RunConfig
from mmrl.config.placement import RoleName
from mmrl.data.images import ImageStore, images_aside
from mmrl.data.mixture import as_mixture
from mmrl.engines.vllm_plan import check_room
from mmrl.errors import ConfigError
from mmrl.models.policy import PolicyModel
from mmrl.rewards.probes import ProbeSummary
from mmrl.rewards.runner import RewardRunner
from mmrl.trainer.estimate import Estimate
from mmrl.trainer.estimates import estimate_run
from mmrl.trainer.fitting import Fitted, OverlongPolicy, fit, overlong_policy
from mmrl.trainer.machine_notes import machine_notes
from mmrl.trainer.memory import has_sampler, num_parameters
from mmrl.trainer.pair_notes import pair_notes
from mmrl.trainer.preflight_sizes import SizesReport, classifier_report, sizes_report
from mmrl.trainer.reward_try_out import NO_TRY_OUT, TryOut, try_out
from mmrl.trainer.run_data import RunData, batch_size, check_data, load_data, rows_a_prompt
from mmrl.trainer.stages import UserStages
from mmrl.trainer.targets import prompt_only
from mmrl.trainer.unused_parts import freeze_unused_parts

DRY_RUN_ROWS = 32
"""Rows whose answers a dry run tries on the rewards; a run tries `reward_runner.try_rows`."""


@dataclass(frozen=True)
class PreflightReport:
    """Facts of a run before it starts. Token counts are taken after images are expanded.

    mixture: name of each training set -> its samples and its share of what is drawn.
    overlong: how many prompts are over the limit, what becomes of them. rewards: the answers that were tried, by kind.
    problems: what the rewards get wrong. placement: where each part of the run is. notes: what was set by itself.
    """

    train_samples: int
    eval_samples: int
    mixture: dict[str, dict[str, float]]
    samples_per_step: int
    responses_per_step: int
    optimiser_steps: int
    data_epochs: float
    prompt_tokens_min: int
    prompt_tokens_max: int
    prompt_tokens_mean: float
    max_prompt_tokens: int
    share_over_limit: float
    on_overlong: OverlongPolicy
    num_over_limit: int
    num_dropped: int
    num_resized: int
    max_images: int
    parameters: int
    trainable_parameters: int
    weights_and_optimiser_bytes: int
    estimates: tuple[Estimate, ...]
    rewards: tuple[ProbeSummary, ...]
    problems: tuple[str, ...]
    placement: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        sets = ", ".join(f"{name} {part['share']:.0%}" for name, part in self.mixture.items())
        lines = [
            f"data: {self.train_samples} training samples, {self.eval_samples} held out"
            + (f"; drawn from {sets}" if len(self.mixture) > 1 else ""),
            f"prompts: {self.prompt_tokens_min} to {self.prompt_tokens_max} tokens with images expanded, "
            f"mean {self.prompt_tokens_mean:.0f}; {self.num_over_limit} ({self.share_over_limit:.1%}) over the limit "
            f"of {self.max_prompt_tokens} {overlong_policy(self.on_overlong)}"
            f"; up to {self.max_images} image(s) in a prompt",
            f"batch: {self.samples_per_step} prompts and {self.responses_per_step} responses a step, "
            f"{self.optimiser_steps} optimiser steps in all, {self.data_epochs:.2f} passes over the data",
            f"model: {self.parameters:,} parameters, {self.trainable_parameters:,} trained; "
            f"weights, gradients and optimiser take {self.weights_and_optimiser_bytes / 2**30:.2f} GiB in all",
        ]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"estimate: {estimate.line}" for estimate in self.estimates]
        lines += [f"reward: {_summary_line(summary)}" for summary in self.rewards]
        lines += [f"problem: {problem}" for problem in self.problems]
        return [*lines, self._placement_line]

    @property
    def opening_lines(self) -> list[str]:
        """The most of it, for a run that begins: without figures that only planning needs."""
        estimates = [f"estimate: {each.line}" for each in self.estimates if each.name in ("time", "memory")]
        return [*self.lines[:4], *estimates, self._placement_line]

    @property
    def _placement_line(self) -> str:
        return "placement: " + ", ".join(f"{role} on {where}" for role, where in self.placement.items())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_rewards(config: RunConfig, functions: Sequence[Callable[..., Any]] = ()) -> None:
    """RL needs something to learn from, in the config or passed from Python."""
    if config.kind == "rl" and not config.reward and not functions:
        raise ConfigError(
            "reward: kind 'rl' needs at least one reward (got none), such as `reward: [{type: exact}]`, "
            "or a function passed to `train`"
        )


def preflight(config: RunConfig) -> PreflightReport | SizesReport:
    """Reads the data, counts, and tries the rewards; raises the error that the run would end with. Images that are not
    stored yet are kept aside while it lasts.

    Of a model of which only config.json is there, sizes are told and tokens are not counted.
    """
    with images_aside():
        return _preflight(config)


def _preflight(config: RunConfig) -> PreflightReport | SizesReport:
    from mmrl.models.classifier import is_classifier
    from mmrl.models.loading import device_of, has_only_config, load_skeleton
    from mmrl.trainer.reward_engines import check_classifier

    check_rewards(config)
    UserStages(config.stages)
    device_of(config.model)
    data = load_data(config)
    check_data(config, data)
    notes: list[str] = [*machine_notes(config.placement), *pair_notes(config, data)]
    if config.kind == "reward_model" and is_classifier(config.model.path):
        check_classifier(config, data)
        return classifier_report(config, data, placement=_placement(config), notes=notes)
    config = freeze_unused_parts(config, data, say=notes.append)
    if has_only_config(config.model.path):
        return sizes_report(config, data, placement=_placement(config), notes=notes)
    policy = load_skeleton(config.model, config.data.image, store=ImageStore())
    train = fit(data.train, policy.prompts, config.data, what="data.train")
    held_out = fit(data.held_out, policy.prompts, config.data, what="data.eval")
    check_data(config, RunData(train.kept, held_out.kept))
    if config.rollout.engine == "vllm":
        check_room(config, policy, [*train.kept, *held_out.kept], on_cpu=device_of(config.model).type == "cpu")
    tried = NO_TRY_OUT
    if config.reward:
        with RewardRunner(config.reward, config.reward_runner) as rewards:
            tried = try_out(rewards, train.kept, num_rows=DRY_RUN_ROWS)
    return replace(make_report(config, policy, train, len(held_out.kept), tried), notes=tuple(notes))


def announce(
    config: RunConfig,
    policy: PolicyModel,
    train: Fitted,
    num_held_out: int,
    rewards: RewardRunner,
    *,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> PreflightReport:
    """Tells the report of a run that is about to begin; what its rewards get wrong as warnings."""
    num_rows = config.reward_runner.try_rows if config.kind == "rl" else 0
    report = make_report(config, policy, train, num_held_out, try_out(rewards, train.kept, num_rows=num_rows))
    for line in report.opening_lines:
        say(f"preflight: {line}")
    for problem in report.problems:
        warn(f"preflight: {problem}")
    return report


def make_report(
    config: RunConfig, policy: PolicyModel, train: Fitted, num_held_out: int, tried: TryOut
) -> PreflightReport:
    """policy: with or without its weights."""
    size, is_rl = batch_size(config)[1], config.kind == "rl"
    mixture = as_mixture(train.kept)
    total, trained = num_parameters(policy)
    kept_lengths = [policy.prompts.num_tokens(prompt_only(sample)) for sample in train.kept]
    return PreflightReport(
        train_samples=len(train.kept),
        eval_samples=num_held_out,
        mixture={
            part.name: {"samples": float(len(part.samples)), "share": share}
            for part, share in zip(mixture.parts, mixture.shares, strict=True)
        },
        samples_per_step=size,
        responses_per_step=size * rows_a_prompt(config),
        optimiser_steps=config.train.steps * (config.train.mini_batches * config.train.epochs if is_rl else 1),
        data_epochs=config.train.steps * size / len(train.kept),
        prompt_tokens_min=min(train.lengths),
        prompt_tokens_max=max(train.lengths),
        prompt_tokens_mean=math.fsum(train.lengths) / len(train.lengths),
        max_prompt_tokens=config.data.max_prompt_tokens,
        share_over_limit=train.num_long / len(train.lengths),
        on_overlong=config.data.on_overlong,
        num_over_limit=train.num_long,
        num_dropped=train.num_dropped,
        num_resized=train.num_resized,
        max_images=max(len(sample.images) for sample in train.kept),
        parameters=total,
        trainable_parameters=trained,
        weights_and_optimiser_bytes=4 * total + 12 * trained,
        estimates=tuple(estimate_run(config, policy, train.kept, kept_lengths, num_held_out)),
        rewards=tried.summaries,
        problems=tried.problems,
        placement=_placement(config),
    )


def _placement(config: RunConfig) -> dict[str, str]:
    """Where each role runs."""
    needs_critic = config.kind == "rl" and config.algorithm.needs_critic
    names: dict[RoleName, str] = {"actor": "actor"}
    names |= {"rollout": f"rollout ({config.rollout.engine})"} if has_sampler(config) else {}
    names |= {"critic": "critic"} if needs_critic else {}
    roles = {name: _place_of(role, config) for role, name in names.items()}
    if config.reward:
        roles["rewards"] = f"{config.reward_runner.workers} processes beside it"
    return roles


def _place_of(role: RoleName, config: RunConfig) -> str:
    from mmrl.models.loading import device_of

    dtype, placement = config.model.dtype, config.placement
    if placement.executor == "inline":
        return f"this process, {device_of(config.model)} in {dtype}"
    name = placement.pool_of(role)
    pool = placement.pools[name]
    gpus = f"{pool.gpus_per_worker:g} GPU" if pool.gpus_per_worker else f"{pool.num_threads} threads"
    return f"pool {name} ({pool.workers} workers of {gpus}) in {dtype}"


def _summary_line(summary: ProbeSummary) -> str:
    mean = "no score" if summary.mean is None else f"mean {summary.mean:.3g}"
    missing = f", {summary.missing} without a score" if summary.missing else ""
    return f"{summary.responses} responses of kind '{summary.probe}': {mean}{missing}"
