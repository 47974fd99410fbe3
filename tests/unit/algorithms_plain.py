"""Advantages, token losses and corrections of every kind as plain Python over lists: what the package is compared with.

An estimator takes the groups and the algorithm's config and gives one number for each response, or one for each token.
One that is not here is `plain_advantages` in the test of its algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance
from typing import Any

import algorithms_oracle as oracle
from algorithms_oracle import Dual, Groups, Response, Token

Advantages = list[list[Any]]
GREEDY_SCORE = 0.25
"""What the greedy response to every prompt scores, where one is compared with."""


def rloo(groups: Groups, config: Any) -> Advantages:
    def of_group(group: list[Response]) -> list[float]:
        returns = oracle.penalised_returns(group, config)
        if oracle.without_spread(returns):
            return [0.0] * len(group)
        return [value - (sum(returns) - value) / (len(group) - 1) for value in returns]

    return [of_group(group) for group in groups]


def opo(groups: Groups, config: Any) -> Advantages:
    def of_group(group: list[Response]) -> list[float]:
        returns = oracle.penalised_returns(group, config)
        num_tokens = sum(row.num_sampled for row in group)
        if oracle.without_spread(returns) or num_tokens == 0:
            return [0.0] * len(group)
        weighted = sum(row.num_sampled * value for row, value in zip(group, returns, strict=True))
        return [value - weighted / num_tokens for value in returns]

    return [of_group(group) for group in groups]


def gpg(groups: Groups, config: Any) -> Advantages:
    num_with_spread = sum(not oracle.without_spread([row.score for row in group]) for group in groups)
    scale = len(groups) / max(num_with_spread, 1)
    return [[value * scale for value in group] for group in oracle.dr_grpo_advantages(groups, config)]


def pass_at_k(groups: Groups, config: Any) -> Advantages:
    """The maximum of the group less the maximum without the response."""

    def of_group(group: list[Response]) -> list[float]:
        returns = oracle.penalised_returns(group, config)
        if oracle.without_spread(returns):
            return [0.0] * len(group)
        return [max(returns) - max(returns[:index] + returns[index + 1 :]) for index in range(len(returns))]

    return [of_group(group) for group in groups]


def reinforce_plus_plus_baseline(groups: Groups, config: Any) -> Advantages:
    return whitened(groups, _spread_out(groups, oracle.dr_grpo_advantages(groups, config)))


def reinforce_plus_plus(groups: Groups, config: Any) -> Advantages:
    """The sum of what comes from a token on, whitened."""
    no_values = [[[0.0] * len(row.mask) for row in group] for group in groups]
    return whitened(groups, _gae(groups, no_values, config, [[1.0] * len(group) for group in groups]))


def ppo(groups: Groups, config: Any) -> Advantages:
    lambdas = [[config.lam] * len(group) for group in groups]
    return whitened(groups, _gae(groups, _values(groups), config, lambdas))


def vapo(groups: Groups, config: Any) -> Advantages:
    def lam(row: Response) -> float:
        return min(max(1 - 1 / (config.length_alpha * max(row.num_sampled, 1)), 0.0), 1.0)

    return whitened(groups, _gae(groups, _values(groups), config, [[lam(row) for row in group] for group in groups]))


def remax(groups: Groups, config: Any) -> Advantages:
    return [[value - GREEDY_SCORE for value in oracle.penalised_returns(group, config)] for group in groups]


def dapo(groups: Groups, config: Any, *, response_limit: int = 9) -> Advantages:
    """GRPO of scores less a penalty that grows over the last tokens before the limit; none where all answers are wrong,
    unless the outcome gate is off."""
    buffer = config.overlong_buffer * response_limit
    penalties = [
        [
            config.overlong_penalty * min(max((row.num_sampled - (response_limit - buffer)) / buffer, 0.0), 1.0)
            if config.outcome_gate == "off" or any(each.score > 0 for each in group)
            else 0.0
            for row in group
        ]
        for group in groups
    ]
    return [
        [0.0] * len(group)
        if oracle.without_spread([row.score for row in group])
        else _normalised(
            [value - less for value, less in zip(oracle.penalised_returns(group, config), lost, strict=True)]
        )
        for group, lost in zip(groups, penalties, strict=True)
    ]


def gdpo(groups: Groups, config: Any) -> Advantages:
    """Each part normalised in its group, weighted and summed, then divided by the std over all responses."""
    sums = []
    for group in groups:
        total = [0.0] * len(group)
        for index, (_, _, weight) in enumerate(group[0].parts):
            part = _normalised([row.parts[index][1] for row in group])
            total = [before + weight * value for before, value in zip(total, part, strict=True)]
        sums.append(total)
    everyone = [value for of_group in sums for value in of_group]
    if len(everyone) < 2:
        return sums
    assert abs(sum(everyone)) < 1e-9, "each group's sum is zero, and so is the mean"
    std = math.sqrt(variance(everyone) + 1e-8)
    return [[value / std for value in of_group] for of_group in sums]


def half_way(groups: Groups, config: Any) -> Advantages:
    """What the user's function of the tests gives: returns less the middle of their range."""

    def of_group(group: list[Response]) -> list[float]:
        returns = oracle.penalised_returns(group, config)
        return [value - (max(returns) + min(returns)) / 2 for value in returns]

    return [of_group(group) for group in groups]


ESTIMATORS: dict[str, Callable[[Groups, Any], Advantages]] = {
    "cispo": oracle.grpo_advantages,
    "dapo": dapo,
    "dr_grpo": oracle.dr_grpo_advantages,
    "gdpo": gdpo,
    "gpg": gpg,
    "grpo": oracle.grpo_advantages,
    "gspo": oracle.grpo_advantages,
    "opo": opo,
    "pass_at_k": pass_at_k,
    "ppo": ppo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
    "remax": remax,
    "rloo": rloo,
    "sapo": oracle.grpo_advantages,
    "vapo": vapo,
    "file": half_way,
}


def sequence_clipped_loss(token: Token, config: Any) -> Dual:
    row = token.response
    logs = [new - old for new, old, sampled in zip(row.logprobs, row.old, row.mask, strict=True) if sampled]
    sequence = Dual(sum(logs) / len(logs), 1.0)
    return oracle.clipped_loss(Token(token.logprob, sequence, token.advantage, row), config)


def capped_loss(token: Token, config: Any) -> Dual:
    return token.logprob * (-min(math.exp(token.log_ratio.value), config.cap) * token.advantage)


def gated_loss(token: Token, config: Any) -> Dual:
    tau = config.temperature_positive if token.advantage > 0 else config.temperature_negative
    gate = 1 / (1 + math.exp(-tau * (math.exp(token.log_ratio.value) - 1)))
    # By the chain rule: d gate / d log r = tau * gate * (1 - gate) * r
    slope = tau * gate * (1 - gate) * math.exp(token.log_ratio.value) * token.log_ratio.slope
    return Dual(gate, slope) * (-token.advantage * 4 / tau)


def plain_loss(token: Token, config: Any) -> Dual:
    return token.logprob * -token.advantage


LOSSES: dict[str, Callable[[Token, Any], Dual]] = {
    "clip": oracle.clipped_loss,
    "gspo": sequence_clipped_loss,
    "cispo": capped_loss,
    "sapo": gated_loss,
    "plain": plain_loss,
}


def correction_weights(row: Response, config: Any) -> tuple[list[float], bool]:
    """The weight of each token of a response, and whether the response is kept."""
    logs = [(old - sampler) * bit for old, sampler, bit in zip(row.old, row.sampler or row.old, row.mask, strict=True)]
    total = sum(logs)
    kept = config.sequence_mask is None or abs(total) <= math.log(config.sequence_mask)
    ratios = [math.exp(total if config.level == "sequence" else value) for value in logs]
    if config.weight is None:
        return [1.0] * len(ratios), kept
    if config.weight == "tis":
        return [min(ratio, config.cap) for ratio in ratios], kept
    return [ratio if config.low <= ratio <= config.high else 0.0 for ratio in ratios], kept


def tokens_of_highest_entropy(groups: Groups, share: float) -> float:
    """The lowest entropy of a token that learns."""
    values = sorted(
        (
            entropy
            for group in groups
            for row in group
            for entropy, bit in zip(row.entropy, row.mask, strict=True)
            if bit
        ),
        reverse=True,
    )
    return values[math.ceil(share * len(values)) - 1] if values else math.inf


def value_update(
    groups: Groups, values: list[list[float]], config: Any, *, value_clip: float | None
) -> tuple[float, list[list[float]]]:
    """Loss of a critic that has come to `values`, a row for each response, and its gradient by each of them. It learns
    the advantages before whitening, by its own lambda, plus the values that it had."""
    lam = config.lam if config.type == "ppo" else config.critic_lam
    gains = _gae(groups, _values(groups), config, [[lam] * len(group) for group in groups])
    rows = [row for group in groups for row in group]
    gains_of_rows = [of_row for of_group in gains for of_row in of_group]
    num_tokens = max(sum(row.num_sampled for row in rows), 1)
    loss, gradient = 0.0, []
    for row, now, gained in zip(rows, values, gains_of_rows, strict=True):
        slopes = [0.0] * len(row.mask)
        for t in [index for index, bit in enumerate(row.mask) if bit]:
            gap = Dual(now[t], 1.0) + -(gained[t] + row.values[t])
            term = 0.5 * gap * gap
            if value_clip is not None:
                clipped = Dual(now[t], 1.0).clip(row.values[t] - value_clip, row.values[t] + value_clip)
                clipped_gap = clipped + -(gained[t] + row.values[t])
                term = oracle.larger(term, 0.5 * clipped_gap * clipped_gap)
            loss += term.value / num_tokens
            slopes[t] = term.slope / num_tokens
        gradient.append(slopes)
    return loss, gradient


def whitened(groups: Groups, advantages: Advantages) -> Advantages:
    """Mean 0 and variance 1 over the sampled tokens of the batch."""
    tokens = [
        value
        for group, of_group in zip(groups, advantages, strict=True)
        for row, values in zip(group, of_group, strict=True)
        for value, bit in zip(values, row.mask, strict=True)
        if bit
    ]
    if len(tokens) < 2:
        return advantages
    mean, std = fmean(tokens), math.sqrt(variance(tokens) + 1e-8)
    return [[[(value - mean) / std for value in values] for values in of_group] for of_group in advantages]


def _normalised(values: Sequence[float]) -> list[float]:
    if oracle.without_spread(values):
        return [0.0] * len(values)
    mean = fmean(values)
    return [(value - mean) / (math.sqrt(variance(values)) + 1e-6) for value in values]


def _spread_out(groups: Groups, advantages: Sequence[Sequence[float]]) -> Advantages:
    return [
        [[value] * len(row.mask) for row, value in zip(group, of_group, strict=True)]
        for group, of_group in zip(groups, advantages, strict=True)
    ]


def _values(groups: Groups) -> Advantages:
    return [[row.values for row in group] for group in groups]


def _gae(groups: Groups, values: Advantages, config: Any, lambdas: list[list[float]]) -> Advantages:
    """A_t = delta_t + gamma lambda A_{t+1} over the sampled tokens of a response, the score at the last of them."""

    def of_response(row: Response, value: Sequence[float], lam: float) -> list[float]:
        found = [0.0] * len(row.mask)
        later_value = later_advantage = 0.0
        reward = row.score
        for t in reversed([index for index, bit in enumerate(row.mask) if bit]):
            if config.kl.where == "reward":
                reward -= config.kl.coef * (row.old[t] - row.reference[t])
            found[t] = reward + config.gamma * later_value - value[t] + config.gamma * lam * later_advantage
            later_value, later_advantage, reward = value[t], found[t], 0.0
        return found

    return [
        [of_response(*each) for each in zip(group, of_group, lams, strict=True)]
        for group, of_group, lams in zip(groups, values, lambdas, strict=True)
    ]
