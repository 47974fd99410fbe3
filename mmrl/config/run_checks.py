"""What must fit together in a run; each check raises ValueError that names the key, the values and what to do."""

from __future__ import annotations

from mmrl.config.algorithm import DapoConfig, GdpoConfig, advantage_config
from mmrl.config.lora_checks import check_lora
from mmrl.config.offline_checks import check_offline
from mmrl.config.placement_checks import check_engine, check_placement
from mmrl.config.run import RunConfig

RESERVED_PART_NAMES = ("reward", "mean", "std", "missing", "num_samples", "length_mean", "truncated_share")
"""Metrics that stand beside those of the parts of a reward."""


def check_run(config: RunConfig) -> None:
    """Raises ValueError at the first thing that does not fit."""
    for check in (
        _check_group_size,
        _check_critic,
        _check_rewards,
        _check_rewards_of_algorithm,
        check_offline,
        _check_kl,
        _check_correction,
        _check_batches,
        check_lora,
        check_engine,
        check_placement,
    ):
        check(config)


def _check_group_size(config: RunConfig) -> None:
    algorithm = config.algorithm
    if config.kind == "rl" and algorithm.group_size < algorithm.min_group_size:
        raise ValueError(
            f"algorithm.group_size: algorithm '{algorithm.type}' needs group_size >= {algorithm.min_group_size} "
            f"(got {algorithm.group_size}); it compares the responses of one prompt with each other. For one response "
            "a prompt use 'ppo', 'reinforce_plus_plus' or 'remax'"
        )


def _check_critic(config: RunConfig) -> None:
    algorithm = config.algorithm
    if config.critic is not None and not (config.kind == "rl" and algorithm.needs_critic):
        who = f"algorithm '{algorithm.type}'" if config.kind == "rl" else f"kind '{config.kind}'"
        raise ValueError(f"critic: {who} has no critic to set; leave `critic` out, or use algorithm 'ppo' or 'vapo'")
    if config.kind == "rl" and config.critic_warmup_steps >= config.train.steps:
        raise ValueError(
            f"critic.warmup_steps: in the first {config.critic_warmup_steps} steps only the critic learns, so that the "
            f"policy would never move in train.steps {config.train.steps}; set critic.warmup_steps below train.steps "
            f"(algorithm '{algorithm.type}' has {algorithm.critic_warmup_steps} of its own)"
        )


def _check_rewards(config: RunConfig) -> None:
    names = [reward.part_name for reward in config.reward]
    for name in names:
        if name in RESERVED_PART_NAMES:
            raise ValueError(f"reward: a reward cannot be named {name!r}, which is a metric already; choose another")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"reward: two rewards are named {twice[0]!r}; give one of them another `name`")


def _check_rewards_of_algorithm(config: RunConfig) -> None:
    algorithm, types = config.algorithm, [reward.type for reward in config.reward]
    source = None if algorithm.advantage.path is not None else advantage_config(algorithm)
    if isinstance(source, DapoConfig) and source.overlong_buffer > 0 and "overlong" in types:
        raise ValueError(
            "reward: 'overlong' would punish length twice, since algorithm 'dapo' shapes it by itself; leave it "
            "out, or set algorithm.overlong_buffer: 0"
        )
    normalised = [reward for reward in config.reward if reward.normalise != "none"]
    if isinstance(source, GdpoConfig) and normalised:
        raise ValueError(
            f"reward: '{normalised[0].part_name}' has normalise: {normalised[0].normalise}, and algorithm 'gdpo' "
            "normalises each reward within its group by itself; leave normalise out, or use another algorithm such as "
            "'grpo'"
        )
    if algorithm.samples_greedy and any(reward.normalise == "group" for reward in normalised):
        raise ValueError(
            f"reward: normalise: group does not go with algorithm '{algorithm.type}', whose greedy response has no "
            "group to be compared in; use normalise: running"
        )
    if isinstance(source, GdpoConfig) and "veto" in types:
        raise ValueError(
            "reward: 'veto' sets the total of a response, and algorithm 'gdpo' learns from each reward by itself and "
            "never from the total; leave the veto out, or use another algorithm such as 'grpo'"
        )


def _check_kl(config: RunConfig) -> None:
    kl = config.algorithm.kl
    if kl.coef > 0 and kl.where == "loss" and kl.estimator == "k1":
        raise ValueError(
            "algorithm.kl: estimator k1 has zero expected gradient in the loss; use k2 or k3, or `where: reward`"
        )
    if kl.coef > 0 and kl.where == "reward" and kl.estimator != "k1":
        raise ValueError(
            f"algorithm.kl: in the reward only estimator k1 is right (got {kl.estimator}); use k1, or `where: loss`"
        )


def _check_correction(config: RunConfig) -> None:
    cut = next(iter(sorted({"top_p", "top_k"} & config.rollout.changed)), None)
    if cut is not None and config.algorithm.correction.is_on:
        raise ValueError(
            f"algorithm.correction: does not go with rollout.{cut} (got {getattr(config.rollout, cut):g}), which keeps "
            "the sampler from some tokens, so that its probabilities are of another distribution than the trainer's; "
            f"turn rollout.{cut} off, or leave the correction out"
        )


def _check_batches(config: RunConfig) -> None:
    prompts, parts = config.rollout.prompts_per_step, config.train.mini_batches
    if config.kind == "rl" and prompts % parts:
        sizes = [size for size in range(1, prompts + 1) if prompts % size == 0]
        nearest = min(sizes, key=lambda size: abs(size - parts))
        below = prompts // parts * parts
        multiples = [size for size in (below, below + parts) if size]
        raise ValueError(
            f"train.mini_batches: {parts} does not divide rollout.prompts_per_step {prompts}; "
            f"nearest that does: {nearest}; or set rollout.prompts_per_step to {' or '.join(map(str, multiples))}"
        )
