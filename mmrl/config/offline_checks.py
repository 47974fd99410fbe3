"""What must fit together in runs that learn from answers that are there already; raises ValueError as `run_checks`."""

from __future__ import annotations

from mmrl.config.algorithm import GrpoConfig
from mmrl.config.offline import RewardModelTraining
from mmrl.config.preference import DpoConfig, KtoConfig
from mmrl.config.run import RunConfig
from mmrl.config.unread import UnreadError


def check_offline(config: RunConfig) -> None:
    _check_sections(config)
    if config.kind == "rl":
        return
    _check_one_update(config)
    if config.kind == "sft":
        return
    _check_nothing_of_rl(config)
    if config.kind == "reward_model":
        _check_reward_model(config)
    if config.kind == "preference" and isinstance(config.preference, KtoConfig) and config.preference.batch_size < 2:
        raise ValueError(
            "preference.batch_size: 'kto' compares answers with those to other prompts, so a step needs at least 2 "
            "samples (got 1); raise it, or use a loss on pairs such as 'dpo'"
        )


def _check_sections(config: RunConfig) -> None:
    """Settings of another kind would have no effect."""
    own = {"preference": DpoConfig(), "reward_model": RewardModelTraining()}
    for kind, default in own.items():
        if kind != config.kind and getattr(config, kind) != default:
            raise UnreadError(
                f"{kind}: these settings are for kind '{kind}', and kind is '{config.kind}', which would not look at "
                f"them; set kind: {kind}, or leave them out",
                kind,
            )


def _check_one_update(config: RunConfig) -> None:
    train = config.train
    if (train.mini_batches, train.epochs) != (1, 1):
        raise ValueError(
            f"train: kind '{config.kind}' makes one optimiser step of {config.kind}.batch_size samples a step (got "
            f"mini_batches {train.mini_batches}, epochs {train.epochs}); leave both at 1 and set "
            f"{config.kind}.batch_size and train.steps"
        )


def _check_nothing_of_rl(config: RunConfig) -> None:
    if config.algorithm != GrpoConfig():
        raise UnreadError(
            f"algorithm: kind '{config.kind}' samples no responses to learn from, so algorithm "
            f"'{config.algorithm.type}' would not be used; set {config.kind} instead, or kind: rl",
            "algorithm",
        )
    if config.stages:
        raise ValueError(
            f"stages: stages of your own stand between those of kind 'rl', and kind '{config.kind}' has none of them; "
            "leave stages out"
        )
    if config.train.path == "packed":
        raise ValueError(
            f"train.path: packed repeats the prompt and its images for both answers of a pair, which kind "
            f"'{config.kind}' has everywhere; use prefix"
        )


def _check_reward_model(config: RunConfig) -> None:
    if config.reward:
        raise ValueError(
            "reward: kind 'reward_model' samples no responses, so there is nothing for a reward to score; leave reward "
            "out. The model that comes of the run is a reward itself: reward: [{type: model, path: ...}]"
        )
