"""Losses on preferences, plain: Python floats, one answer at a time. It shares no code with the package."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmrl.batch import GroupBatch, PreparedPrompt, TokenStats, build_group_batch
from mmrl.types import Rollout


@dataclass
class Answer:
    """Log-probabilities of each token under policy and reference; None is a token of a tool's turn."""

    policy: list[float | None]
    reference: list[float | None]
    is_good: bool

    @property
    def mask(self) -> list[int]:
        return [int(value is not None) for value in self.policy]

    @property
    def length(self) -> int:
        return sum(self.mask)

    @property
    def logprob(self) -> float:
        return math.fsum(value for value in self.policy if value is not None)

    @property
    def reference_logprob(self) -> float:
        return math.fsum(value for value in self.reference if value is not None)

    @property
    def ratio(self) -> float:
        return self.logprob - self.reference_logprob


Groups = list[list[Answer]]


def pair(
    chosen: Sequence[float | None],
    chosen_reference: Sequence[float | None],
    rejected: Sequence[float | None],
    rejected_reference: Sequence[float | None],
) -> list[Answer]:
    return [
        Answer(list(chosen), list(chosen_reference), True),
        Answer(list(rejected), list(rejected_reference), False),
    ]


def random_pairs(seed: int) -> Groups:
    """1 to 5 pairs of answers of 1 to 7 tokens, with tool turns in some."""
    draw = random.Random(seed)

    def one(is_good: bool) -> Answer:
        sampled = [draw.random() < 0.75 for _ in range(draw.randint(0, 6))] + [True]
        reference = [-abs(draw.gauss(2, 1)) - 0.01 if bit else None for bit in sampled]
        policy = [None if value is None else min(-0.01, value + draw.gauss(0, 0.7)) for value in reference]
        return Answer(policy, reference, is_good)

    return [[one(True), one(False)] for _ in range(draw.randint(1, 5))]


def random_judged(seed: int) -> Groups:
    """As pairs, and some prompts with a single answer, good or bad."""
    draw = random.Random(seed + 1)
    groups = random_pairs(seed) + random_pairs(seed + 1000)
    return [group if draw.random() < 0.5 else [draw.choice(group)] for group in groups]


def batch_of(groups: Groups, *, z: float | None = None) -> GroupBatch:
    """The batch with the reference in float64."""
    rollouts = [
        [
            Rollout(
                sample_id=str(number),
                index=index,
                token_ids=tuple(range(1, len(row.policy) + 1)),
                response_mask=tuple(row.mask),
                logprobs=(0.0,) * len(row.policy),
                finish_reason="stop",
                text="",
                policy_version=0,
                seed=0,
            )
            for index, row in enumerate(group)
        ]
        for number, group in enumerate(groups)
    ]
    batch = build_group_batch([PreparedPrompt((1,), ())] * len(groups), rollouts)
    rows = [row for group in groups for row in group]
    return batch.with_(
        reference_logprobs=_padded([row.reference for row in rows]),
        preferred=torch.tensor([float(row.is_good) for row in rows]),
        baselines=None if z is None else torch.full((len(rows),), z, dtype=torch.float64),
        whole_groups=True,
    )


def stats_of(groups: Groups) -> TokenStats:
    """float64 log-probabilities that take gradients."""
    return TokenStats(_padded([row.policy for group in groups for row in group]).requires_grad_())


def _padded(rows: Sequence[Sequence[float | None]]) -> torch.Tensor:
    width = max(map(len, rows))
    filled = [[*(value or 0.0 for value in row), *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.float64)


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_sigma(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def log_odds(logprob: float) -> float:
    return logprob - math.log(1 - math.exp(logprob))


def pair_loss(config: Any, chosen: Answer, rejected: Answer, delta: float = 0.0) -> float:
    kind = config.type
    if kind == "simpo":
        gap = config.beta * (chosen.logprob / chosen.length - rejected.logprob / rejected.length)
        return -log_sigma(gap - config.gamma)
    if kind == "orpo":
        good, bad = chosen.logprob / chosen.length, rejected.logprob / rejected.length
        return -good - config.odds_weight * log_sigma(log_odds(good) - log_odds(bad))
    c, j = config.beta * chosen.ratio, config.beta * rejected.ratio
    d = c - j
    if kind == "dpo":
        return -log_sigma(d)
    if kind == "cdpo":
        return -(1 - config.label_smoothing) * log_sigma(d) - config.label_smoothing * log_sigma(-d)
    if kind == "robust":
        eps = config.label_smoothing
        return (-(1 - eps) * log_sigma(d) + eps * log_sigma(-d)) / (1 - 2 * eps)
    if kind == "ipo":
        gap = chosen.ratio - rejected.ratio
        if config.length_average:
            gap = chosen.ratio / chosen.length - rejected.ratio / rejected.length
        return (gap - 1 / (2 * config.beta)) ** 2
    if kind == "hinge":
        return max(0.0, 1 - d)
    if kind == "apo_zero":
        return 1 - sigma(c) + sigma(j)
    if kind == "apo_down":
        return sigma(c) + 1 - sigma(d)
    if kind == "nca":
        return -log_sigma(c) - 0.5 * log_sigma(-c) - 0.5 * log_sigma(-j)
    if kind == "exo":
        eps = config.label_smoothing
        return sigma(d) * (log_sigma(d) - math.log(1 - eps)) + sigma(-d) * (log_sigma(-d) - math.log(eps))
    assert kind == "mpo"
    quality = -log_sigma(c - delta) - log_sigma(-(j - delta))
    return (
        config.preference_weight * -log_sigma(d)
        + config.quality_weight * quality
        + config.generation_weight * -chosen.logprob / chosen.length
    )


def answer_loss(config: Any, answer: Answer, z: float) -> float:
    """KTO's."""
    gain = config.beta * (answer.ratio - z)
    if answer.is_good:
        return config.desirable_weight * (1 - sigma(gain))
    return config.undesirable_weight * (1 - sigma(-gain))


def update_loss(config: Any, groups: Groups, *, z: float = 0.0, delta: float = 0.0) -> float:
    """The mean over pairs, or of KTO over answers."""
    if config.type == "kto":
        losses = [answer_loss(config, row, z) for group in groups for row in group]
    else:
        losses = [pair_loss(config, group[0], group[1], delta) for group in groups]
    return math.fsum(losses) / len(losses)


def gradient(config: Any, groups: Groups, **settings: float) -> list[list[float]]:
    """By each token's log-probability: central differences, the same for all sampled tokens of an answer."""
    step = 1e-6
    found = []
    for row in (row for group in groups for row in group):
        last = max(index for index, bit in enumerate(row.mask) if bit)
        value = row.policy[last]
        assert value is not None
        row.policy[last] = value + step
        above = update_loss(config, groups, **settings)
        row.policy[last] = value - step
        below = update_loss(config, groups, **settings)
        row.policy[last] = value
        slope = (above - below) / (2 * step)
        found.append([slope * bit for bit in row.mask])
    return found
