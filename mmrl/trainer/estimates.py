"""What a run will take, each figure with where it comes from. Upper bounds where responses may be shorter."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.algorithms import build_algorithm
from mmrl.config import RunConfig
from mmrl.models.flops import forward_flops
from mmrl.models.loading import device_of
from mmrl.models.matrix_peak import matrix_peak
from mmrl.models.policy import PolicyModel
from mmrl.trainer.estimate import Estimate
from mmrl.trainer.memory import estimate_memory
from mmrl.trainer.run_data import batch_size, rows_a_prompt, samples_answers
from mmrl.trainer.targets import prompt_only
from mmrl.types import Sample

NUM_TYPICAL = 4
"""Prompts around the median length whose work stands for that of all."""

EXPECTED_MFU = 0.2
"""Share of the matrix peak that a step is taken to reach, sampling included."""


def estimate_run(
    config: RunConfig, policy: PolicyModel, samples: Sequence[Sample], lengths: Sequence[int], num_held_out: int
) -> list[Estimate]:
    """Steps, time and memory.

    policy: with or without weights. samples: to train on, with their prompt lengths in tokens; at least one.
    """
    return [
        *estimate_steps(config, len(samples)),
        _time(config, policy, samples, lengths, num_held_out),
        *estimate_memory(config, policy, max(lengths)),
    ]


def estimate_steps(config: RunConfig, num_samples: int) -> list[Estimate]:
    """How often weights move and data is seen."""
    key, size = batch_size(config)
    train = config.train
    updates = train.mini_batches * train.epochs if config.kind == "rl" else 1
    passes = train.steps * size / num_samples
    return [
        Estimate(
            "optimiser steps",
            train.steps * updates,
            "steps",
            f"{train.steps} steps (train.steps) of {train.mini_batches} mini-batches and {train.epochs} epochs each",
        ),
        Estimate("data", passes, "passes", f"{train.steps} steps of {size} prompts ({key}) over {num_samples} samples"),
    ]


def _time(
    config: RunConfig, policy: PolicyModel, samples: Sequence[Sample], lengths: Sequence[int], num_held_out: int
) -> Estimate:
    size = batch_size(config)[1]
    group = rows_a_prompt(config)
    response = config.rollout.max_response_tokens
    answered = _flops_a_prompt(policy, samples, lengths, [response] * group)
    passes = _passes(config)
    work = config.train.steps * size * answered * sum(passes.values())
    evaluations = _num_evaluations(config) if num_held_out and config.kind != "reward_model" else 0
    once = 0.0
    if samples_answers(config):
        once += _flops_a_prompt(policy, samples, lengths, [response] * config.eval.samples_per_prompt)
    if config.kind == "preference":
        once += answered  # the answers that were compared
    work += evaluations * num_held_out * once
    peak = matrix_peak(device_of(config.model).type, policy.dtype)
    what = ", ".join(f"{name} {count:g}" for name, count in passes.items())
    return Estimate(
        "time",
        work / (peak * EXPECTED_MFU),
        "s",
        f"{work:.2g} operations at {EXPECTED_MFU:.0%} of the {peak / 1e9:,.0f} GFLOP/s of a matrix product here; a "
        f"step counts as so many forward passes: {what}; {evaluations} evaluations; every response as long as "
        f"rollout.max_response_tokens {response} allows, so shorter ones take less",
    )


def _passes(config: RunConfig) -> dict[str, float]:
    """Forward passes over a step's prompts and responses that each stage is worth; a backward pass is worth two."""
    if config.kind == "preference" and config.preference.needs_reference:
        return {"reference": 1.0, "update": 3.0}
    if config.kind != "rl":
        return {"update": 3.0}
    algorithm = build_algorithm(config.algorithm)
    train = config.train
    update = 3.0 * train.epochs
    passes = {"sampling": 1.0, "update": update}
    if algorithm.needs_reference:
        passes["reference"] = 1.0
    if algorithm.needs_old_logprobs(train.mini_batches, train.epochs):
        passes["old logprobs"] = 1.0
    if config.algorithm.needs_critic:
        passes["critic"] = 1.0 + update
    return passes


def _flops_a_prompt(
    policy: PolicyModel, samples: Sequence[Sample], lengths: Sequence[int], responses: Sequence[int]
) -> float:
    order = sorted(range(len(samples)), key=lambda index: lengths[index])
    middle = max(0, len(order) // 2 - NUM_TYPICAL // 2)
    typical = [policy.prompts.prepare(prompt_only(samples[index])) for index in order[middle : middle + NUM_TYPICAL]]
    prompt_of_row = [index for index in range(len(typical)) for _ in responses]
    return forward_flops(policy, typical, prompt_of_row, list(responses) * len(typical)).total / len(typical)


def _num_evaluations(config: RunConfig) -> int:
    every = config.eval.every
    due = {step for step in range(1, config.train.steps + 1) if every and step % every == 0} | {config.train.steps}
    return len(due) + config.eval.at_start
