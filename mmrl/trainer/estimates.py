"""What a run will take, each figure with where it comes from. Upper bounds where responses may be shorter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.algorithms import build_algorithm
from mmrl.config import RunConfig
from mmrl.models.flops import forward_flops
from mmrl.models.loading import device_of
from mmrl.models.matrix_peak import matrix_peak
from mmrl.models.policy import PolicyModel
from mmrl.trainer.run_data import batch_size
from mmrl.trainer.targets import prompt_only
from mmrl.types import Sample

NUM_TYPICAL = 4
"""Prompts around the median length whose work stands for that of all."""

EXPECTED_MFU = 0.2
"""Share of the matrix peak that a step is taken to reach, sampling included."""

ACTIVATION_BYTES = 34
"""Bytes that a layer keeps for the backward pass, for each token and hidden unit at two bytes a number; without
attention scores, which fused kernels do not keep (Korthikanti et al., arXiv 2205.05198, equation 2)."""

_GIB = 2**30


@dataclass(frozen=True)
class Estimate:
    """unit: steps, passes, s or bytes. reason: what the value was computed from, in words."""

    name: str
    value: float
    unit: str
    reason: str

    @property
    def line(self) -> str:
        shown = {"bytes": f"{self.value / _GIB:.2f} GiB", "s": _duration(self.value)}.get(self.unit)
        return f"{self.name}: {shown or f'{self.value:,.4g} {self.unit}'}; {self.reason}"


def estimate_run(
    config: RunConfig, policy: PolicyModel, samples: Sequence[Sample], lengths: Sequence[int], num_held_out: int
) -> list[Estimate]:
    """Steps, time and memory.

    policy: with or without weights. samples: to train on, with their prompt lengths in tokens; at least one.
    """
    return [
        *_steps(config, len(samples)),
        _time(config, policy, samples, lengths, num_held_out),
        *_memory(config, policy, lengths),
    ]


def _steps(config: RunConfig, num_samples: int) -> list[Estimate]:
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
    size, is_rl = batch_size(config)[1], config.kind == "rl"
    group = config.algorithm.group_size if is_rl else 1
    response = config.rollout.max_response_tokens
    answered = _flops_a_prompt(policy, samples, lengths, [response] * group)
    passes = _passes(config)
    work = config.train.steps * size * answered * sum(passes.values())
    evaluations = _num_evaluations(config) if num_held_out else 0
    once = _flops_a_prompt(policy, samples, lengths, [response] * config.eval.samples_per_prompt)
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


def _memory(config: RunConfig, policy: PolicyModel, lengths: Sequence[int]) -> list[Estimate]:
    total, trained = num_parameters(policy)
    learned = [_bytes("weights", 4 * total, f"{total:,} weights in float32")]
    learned.append(_bytes("gradients", 4 * trained, f"{trained:,} trained weights in float32"))
    learned.append(_bytes("optimiser", 8 * trained, "AdamW keeps two float32 numbers for each trained weight"))
    if config.kind == "rl" and build_algorithm(config.algorithm).needs_reference:
        learned.append(_bytes("reference", 4 * total, "a second copy of the weights, for the KL term"))
    if config.kind == "rl" and config.algorithm.needs_critic:
        learned.append(_bytes("critic", 4 * total + 12 * trained, "taken to be as large as the policy"))
    learned += [_cache(config, policy, lengths), _activations(config, policy, max(lengths))]
    together = sum(each.value for each in learned)
    return [*learned, _bytes("memory", together, "all of these together; images and libraries come on top")]


def _cache(config: RunConfig, policy: PolicyModel, lengths: Sequence[int]) -> Estimate:
    """Keys and values while sampling: each prompt's once a group, each response's own."""
    text = policy.hf.config.get_text_config()
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    width = 2 * text.num_hidden_layers * text.num_key_value_heads * head * _number_bytes(config)
    rows, group = config.rollout.max_batch_rows, config.algorithm.group_size
    if config.kind != "rl":
        group = config.eval.samples_per_prompt
    prompts = -(-rows // group)
    tokens = rows * config.rollout.max_response_tokens + prompts * max(lengths)
    return _bytes(
        "sampling cache",
        tokens * width,
        f"{rows} rows (rollout.max_batch_rows) of {config.rollout.max_response_tokens} tokens and {prompts} prompts of "
        f"up to {max(lengths)}, {width:,} bytes a token",
    )


def _activations(config: RunConfig, policy: PolicyModel, longest: int) -> Estimate:
    text = policy.hf.config.get_text_config()
    group = config.algorithm.group_size if config.kind == "rl" else 1
    in_a_step = batch_size(config)[1] * (longest + group * config.rollout.max_response_tokens)
    tokens = min(config.train.micro_batch_tokens, in_a_step)
    size = tokens * text.hidden_size * text.num_hidden_layers * ACTIVATION_BYTES * _number_bytes(config) / 2
    return _bytes(
        "activations",
        size,
        f"{tokens} tokens at once (at most train.micro_batch_tokens) through {text.num_hidden_layers} layers of "
        f"{text.hidden_size}, {ACTIVATION_BYTES * _number_bytes(config) // 2} bytes for each token, layer and unit; "
        "logits are made in chunks",
    )


def num_parameters(policy: PolicyModel) -> tuple[int, int]:
    """Of all weights and of the trained ones."""
    parameters = list(policy.parameters())
    return (
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    )


def _number_bytes(config: RunConfig) -> int:
    return {"bfloat16": 2, "float32": 4, "float64": 8}[config.model.dtype]


def _bytes(name: str, value: float, reason: str) -> Estimate:
    return Estimate(name, float(value), "bytes", reason)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    hours, rest = divmod(minutes, 60)
    if hours >= 48:
        return f"about {round(hours / 24)} days"
    return f"about {hours} h {rest:02d} min" if hours else f"about {minutes} min"
