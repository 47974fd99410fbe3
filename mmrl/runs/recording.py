"""Which groups of a step keep prompt, text and tokens; the others keep their numbers only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mmrl.types import ScoredGroup


@dataclass(frozen=True)
class Selection:
    """reasons: index of each group that is kept in full -> why. rate: their share of the step's groups."""

    reasons: dict[int, str]
    rate: float


def choose_groups(groups: Sequence[ScoredGroup], *, step: int, budget: int | None) -> Selection:
    """The groups that are kept in full: all when their response tokens fit into `budget` (None: always fit).

    Otherwise six rankings take turns until the budget is spent: prompts with the lowest hash (the same ones each
    time they come by), best and worst mean reward, largest advantage, most truncated responses, and chance, which
    follows from step and prompt. A group is kept whole or not; the first is kept even when it alone is beyond a
    budget above 0.
    """
    sizes = [num_tokens(group) for group in groups]
    if budget is None or sum(sizes) <= budget:
        return Selection(dict.fromkeys(range(len(groups)), "all"), 1.0)
    reasons: dict[int, str] = {}
    left = budget
    for index, reason in _in_turns(_rankings(groups, step)):
        fits = sizes[index] <= left or (not reasons and budget > 0)
        if index not in reasons and fits:
            reasons[index] = reason
            left -= sizes[index]
    return Selection(reasons, len(reasons) / len(groups))


def num_tokens(group: ScoredGroup) -> int:
    """Response tokens of the group."""
    return sum(len(rollout.token_ids) for rollout in group.group.rollouts)


def mean_reward(group: ScoredGroup) -> float | None:
    """Mean of the rewards that are there; None when all are missing."""
    totals = [result.total for result in group.rewards if result.total is not None]
    return sum(totals) / len(totals) if totals else None


def _rankings(groups: Sequence[ScoredGroup], step: int) -> dict[str, list[int]]:
    def by(key: Callable[[int], float | str], among: Sequence[int] | None = None) -> list[int]:
        return sorted(range(len(groups)) if among is None else among, key=key)

    means = [mean_reward(group) for group in groups]
    scored = [index for index, mean in enumerate(means) if mean is not None]
    advantages = [max((abs(a) for a in group.advantages or () if a is not None), default=0.0) for group in groups]
    truncated = [sum(rollout.is_truncated for rollout in group.group.rollouts) for group in groups]
    ids = [group.group.sample.id for group in groups]
    return {
        "fixed prompt": by(lambda index: _hash(ids[index])),
        "best reward": by(lambda index: -(means[index] or 0.0), scored),
        "worst reward": by(lambda index: means[index] or 0.0, scored),
        "largest advantage": by(lambda index: -advantages[index], [i for i, a in enumerate(advantages) if a > 0]),
        "truncated": by(lambda index: -truncated[index], [i for i, count in enumerate(truncated) if count]),
        "random": by(lambda index: _hash(f"{step}:{ids[index]}")),
    }


def _in_turns(rankings: dict[str, list[int]]) -> Iterator[tuple[int, str]]:
    """First of each ranking, then second of each, and so on."""
    for place in range(max(len(ranking) for ranking in rankings.values())):
        for reason, ranking in rankings.items():
            if place < len(ranking):
                yield ranking[place], reason


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
