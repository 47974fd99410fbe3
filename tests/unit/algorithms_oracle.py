"""A slow, plain version of the algorithms: Python floats, one token at a time, slopes by dual numbers.

It shares no code with the package; tests compare loss and gradient with it on random batches.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import torch

from mmrl.batch import GroupBatch, PreparedPrompt, TokenStats, build_group_batch
from mmrl.types import RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup


@dataclass
class Response:
    """One response; lists hold one number a token. Positions where mask is 0 are a tool's answer.

    sampler, values: the sampler's logprobs (the old ones if empty) and a critic's values.
    parts: name, value and weight of each part of the score; one part if empty.
    greedy: of a group's first response, the score of the greedy one to the same prompt.
    """

    score: float
    mask: list[int]
    logprobs: list[float]
    old: list[float]
    reference: list[float]
    entropy: list[float] = field(default_factory=list)
    truncated: bool = False
    sampler: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    parts: list[tuple[str, float, float]] = field(default_factory=list)
    greedy: float | None = None

    @property
    def num_sampled(self) -> int:
        return sum(self.mask)


Groups = list[list[Response]]


def response(score: float, ratios: Sequence[float | None], *, truncated: bool = False) -> Response:
    """A response whose tokens have these ratios to the old policy; None is a token of a tool's answer."""
    mask = [int(ratio is not None) for ratio in ratios]
    old = [-1.0 * sampled for sampled in mask]
    logprobs = [before + math.log(ratio or 1.0) for before, ratio in zip(old, ratios, strict=True)]
    return Response(score, mask, logprobs, old, list(old), [0.5 * sampled for sampled in mask], truncated)


def scored_groups(groups: Groups) -> list[ScoredGroup]:
    """The same as types of the package."""
    scored = []
    for number, group in enumerate(groups):
        rollouts = tuple(
            Rollout(
                sample_id=str(number),
                index=index,
                token_ids=tuple(range(1, len(row.mask) + 1)),
                response_mask=tuple(row.mask),
                logprobs=tuple(row.old),
                finish_reason="length" if row.truncated else "stop",
                text="",
                policy_version=0,
                seed=0,
            )
            for index, row in enumerate(group)
        )
        rewards = tuple(
            RewardResult(
                row.score, tuple(RewardPart(*part) for part in row.parts) or (RewardPart("task", row.score, 1.0),)
            )
            for row in group
        )
        base = group[0].greedy if group else None
        greedy = None if base is None else RewardResult(base, (RewardPart("task", base, 1.0),))
        scored.append(ScoredGroup(RolloutGroup(Sample(str(number), ()), rollouts), rewards, greedy_reward=greedy))
    return scored


def group_batch(scored: Sequence[ScoredGroup], groups: Groups) -> GroupBatch:
    """The batch with old and reference logprobs in float64."""
    batch = build_group_batch([PreparedPrompt((1,), ())] * len(scored), [group.group.rollouts for group in scored])
    rows = [row for group in groups for row in group]
    width = batch.response_ids.shape[1]
    columns = {
        "old_logprobs": [row.old for row in rows],
        "reference_logprobs": [row.reference for row in rows],
        "sampler_logprobs": [row.sampler or row.old for row in rows],
        "old_entropy": [row.entropy for row in rows],
        "values": [row.values for row in rows],
    }
    return batch.with_(**{name: padded(column, width) * batch.response_mask for name, column in columns.items()})


def token_stats(groups: Groups, width: int) -> TokenStats:
    """float64 logprobs that take gradients, and entropies."""
    rows = [row for group in groups for row in group]
    logprobs = padded([row.logprobs for row in rows], width).requires_grad_()
    return TokenStats(logprobs, padded([row.entropy for row in rows], width))


def padded(rows: Sequence[Sequence[float]], width: int) -> torch.Tensor:
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)


def random_groups(seed: int, *, drift: float = 0.4) -> Groups:
    """1 to 4 groups of 2 to 5 responses of 0 to 7 tokens, with tool answers; about a third have no spread."""
    draw = random.Random(seed)

    def one(score: float) -> Response:
        mask = [int(draw.random() < 0.75) for _ in range(draw.randint(0, 7))]

        def numbers(spread: float, centre: Sequence[float]) -> list[float]:
            return [sampled * (value + draw.gauss(0, spread)) for sampled, value in zip(mask, centre, strict=True)]

        old = numbers(1.0, [-2.0] * len(mask))
        entropy = [sampled * draw.random() for sampled in mask]
        return Response(score, mask, numbers(drift, old), old, numbers(0.6, old), entropy)

    groups = []
    for _ in range(draw.randint(1, 4)):
        size = draw.randint(2, 5)
        same = draw.random() < 0.33
        score = draw.choice([0.0, 0.1, 1.0])
        groups.append([one(score if same else draw.choice([0.0, 1.0, draw.uniform(-1, 1)])) for _ in range(size)])
    if not any(row.num_sampled for group in groups for row in group):
        return random_groups(seed + 100_000, drift=drift)
    return groups


@dataclass(frozen=True)
class Dual:
    """A number and its derivative by one token's logprob."""

    value: float
    slope: float = 0.0

    def __add__(self, other: Dual | float) -> Dual:
        other = _dual(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Dual | float) -> Dual:
        other = _dual(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dual:
        return self * -1.0

    def exp(self) -> Dual:
        return Dual(math.exp(self.value), self.slope * math.exp(self.value))

    def clip(self, low: float, high: float) -> Dual:
        if self.value < low:
            return Dual(low)
        return Dual(high) if self.value > high else self


def _dual(value: Dual | float) -> Dual:
    return value if isinstance(value, Dual) else Dual(value)


def larger(left: Dual, right: Dual) -> Dual:
    return left if left.value >= right.value else right


def smaller(left: Dual, right: Dual) -> Dual:
    return left if left.value <= right.value else right


@dataclass(frozen=True)
class Token:
    """One sampled token: its logprob and log ratio as duals, its advantage, and the response that holds it."""

    logprob: Dual
    log_ratio: Dual
    advantage: float
    response: Response


def without_spread(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= 1e-6 * max(1.0, *(abs(value) for value in values))


def penalised_returns(group: list[Response], config: Any) -> list[float]:
    if config.kl.coef == 0 or config.kl.where == "loss":
        return [row.score for row in group]
    return [
        row.score
        - config.kl.coef
        * sum(
            old - reference for old, reference, sampled in zip(row.old, row.reference, row.mask, strict=True) if sampled
        )
        for row in group
    ]


def grpo_advantages(groups: Groups, config: Any) -> list[list[float]]:
    def of_group(group: list[Response]) -> list[float]:
        returns = penalised_returns(group, config)
        if without_spread([row.score for row in group]) or without_spread(returns):
            return [0.0] * len(group)
        mean, spread = fmean(returns), stdev(returns) + 1e-6
        return [(value - mean) / spread for value in returns]

    return [of_group(group) for group in groups]


def dr_grpo_advantages(groups: Groups, config: Any) -> list[list[float]]:
    def of_group(group: list[Response]) -> list[float]:
        returns = penalised_returns(group, config)
        if without_spread(returns):
            return [0.0] * len(group)
        mean = fmean(returns)
        return [value - mean for value in returns]

    return [of_group(group) for group in groups]


def clipped_loss(token: Token, config: Any) -> Dual:
    ratio, advantage = token.log_ratio.exp(), token.advantage
    loss = larger(-(advantage * ratio), -(advantage * ratio.clip(1 - config.clip_low, 1 + config.clip_high)))
    if advantage < 0 and config.dual_clip is not None:
        loss = smaller(loss, Dual(-config.dual_clip * advantage))
    return loss


def token_kl(token: Token, reference: float, config: Any, *, first_update: bool) -> Dual:
    difference = token.logprob + -reference
    if config.kl.estimator == "k2":
        estimate = 0.5 * difference * difference
    else:
        difference = difference.clip(-20, 20)
        estimate = ((-difference).exp() + difference + -1.0).clip(-math.inf, 10)
    weight = 1.0 if first_update else math.exp(token.log_ratio.value)
    return weight * estimate


def weight_of_token(row: Response, aggregation: str, *, tokens: int, sequences: int, response_limit: int) -> float:
    return {
        "token_mean": 1 / tokens,
        "sequence_mean_token_sum": 1 / sequences,
        "sequence_mean_token_mean": 1 / (sequences * max(row.num_sampled, 1)),
        "constant": 1 / (sequences * response_limit),
    }[aggregation]


def update(
    groups: Groups,
    advantages: Sequence[Sequence[float | Sequence[float]]],
    config: Any,
    token_loss: Callable[[Token, Any], Dual],
    *,
    response_limit: int,
    first_update: bool = False,
) -> tuple[float, list[list[float]]]:
    """The loss of one update and its gradient by each logprob, a list for each response.

    advantages: of each response of each group, one number or one for each of its tokens.
    """
    rows = [row for group in groups for row in group]
    counts = {
        "tokens": sum(row.num_sampled for row in rows),
        "sequences": sum(row.num_sampled > 0 for row in rows),
        "response_limit": response_limit,
    }
    flat = [advantage for group in advantages for advantage in group]
    loss, gradient = 0.0, []
    for row, advantage in zip(rows, flat, strict=True):
        slopes = [0.0] * len(row.mask)
        for position in [index for index, sampled in enumerate(row.mask) if sampled]:
            logprob = Dual(row.logprobs[position], 1.0)
            log_ratio = (logprob + -row.old[position]).clip(-20, 20)
            token = Token(logprob, log_ratio, at(advantage, position), row)
            term = token_loss(token, config)
            if config.kl.coef and config.kl.where == "loss":
                term += config.kl.coef * token_kl(token, row.reference[position], config, first_update=first_update)
            term += -config.entropy_coef * row.entropy[position]
            weighted = term * weight_of_token(row, config.loss_aggregation, **counts)
            loss += weighted.value
            slopes[position] = weighted.slope
        gradient.append(slopes)
    return loss, gradient


def at(advantage: float | Sequence[float], position: int) -> float:
    return advantage[position] if isinstance(advantage, Sequence) else advantage
