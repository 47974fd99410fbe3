"""Whether a response did its task, and what is learned from a group in which none did.

A penalty on length gives four wrong answers four different scores; divided by their small spread these become
advantages as large as those between right and wrong, and the policy learns noise. The outcome gate prevents it.

It is of groups that are compared within themselves. Where a response is compared with something else (the batch, a
critic, the greedy response) the gate would only lift the penalties of wrong responses, and right ones would pay alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from statistics import fmean

from mmrl.config.algorithm_base import OutcomeGate
from mmrl.types import RewardPart, RewardResult, ScoredGroup


def failed(reward: RewardResult, shaping_parts: Collection[str] = ()) -> bool:
    """Whether the response did not succeed at its task: the heaviest part (by |weight|, the first of equals) that does
    more than shape gave nothing or less. With a single part this reads its shaped value: at or below 0 is a failure."""
    if not reward.parts:
        return reward.total is not None and reward.total <= 0
    heaviest = max(_outcomes(reward, shaping_parts) or reward.parts, key=lambda part: abs(part.weight))
    return heaviest.value is not None and heaviest.value * heaviest.weight <= 0


def gated(group: ScoredGroup, gate: OutcomeGate, shaping_parts: Collection[str]) -> ScoredGroup:
    """The group with the scores that the gate leaves it; the same object unless all of its responses failed, and for a
    single response, which has no other to be compared with. The greedy response keeps its score.

    `shaping`: without the parts that only shape, where there are others and the total is the sum of its parts (a veto
    sets it otherwise). `group`: every response scores the group's mean, in the total and in each part.
    """
    is_compared = len(group.rewards) > 1
    if gate == "off" or not is_compared or not all(failed(reward, shaping_parts) for reward in group.rewards):
        return group
    if gate == "shaping":
        return replace(group, rewards=tuple(_without_shaping(reward, shaping_parts) for reward in group.rewards))
    total = fmean(reward.total for reward in group.rewards if reward.total is not None)
    means = {
        part.name: fmean(_values(group, part.name)) for part in group.rewards[0].parts if _values(group, part.name)
    }
    level = [
        RewardResult(total, tuple(replace(part, value=means.get(part.name, part.value)) for part in reward.parts))
        for reward in group.rewards
    ]
    return replace(group, rewards=tuple(level))


def _without_shaping(reward: RewardResult, shaping_parts: Collection[str]) -> RewardResult:
    parts = reward.parts
    if not _outcomes(reward, shaping_parts) or any(part.value is None for part in parts) or reward.total is None:
        return reward
    if not math.isclose(reward.total, math.fsum(_worth(part) for part in parts), rel_tol=1e-6, abs_tol=1e-9):
        return reward
    kept = tuple(replace(part, value=0.0, scaled=None) if part.name in shaping_parts else part for part in parts)
    return RewardResult(math.fsum(_worth(part) for part in kept), kept)


def _outcomes(reward: RewardResult, shaping_parts: Collection[str]) -> list[RewardPart]:
    return [part for part in reward.parts if part.name not in shaping_parts]


def _values(group: ScoredGroup, name: str) -> list[float]:
    return [
        part.value for reward in group.rewards for part in reward.parts if part.name == name and part.value is not None
    ]


def _worth(part: RewardPart) -> float:
    return part.worth or 0.0
