"""What was sampled, scored and selected in one step, over all of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from mmrl.algorithms.selection import SelectionStats
from mmrl.engines.base import RolloutStats
from mmrl.rewards.runner import reward_metrics
from mmrl.trainer.throughput import response_metrics
from mmrl.types import RewardResult, RolloutGroup

Numbers = TypeVar("Numbers", bound=Any)


@dataclass(eq=False)
class Sampled:
    """Each list grows by what a round brings. groups, results: as they came, before any stage of the user's own.

    greedy: rewards of greedy responses. rollouts: of each call of the rollout engine. selections: one a round.
    """

    groups: list[RolloutGroup] = field(default_factory=list)
    results: list[RewardResult] = field(default_factory=list)
    greedy: list[RewardResult] = field(default_factory=list)
    rollouts: list[RolloutStats] = field(default_factory=list)
    selections: list[SelectionStats] = field(default_factory=list)
    num_rounds: int = 0
    num_extra_prompts: int = 0

    @property
    def rollout_stats(self) -> RolloutStats | None:
        """Of all calls together; None before the first."""
        return added_up(self.rollouts) if self.rollouts else None

    def metrics(self) -> dict[str, float]:
        """Over all rounds; nothing of what has not come yet."""
        values = response_metrics(self.groups)
        if self.results:
            values |= reward_metrics(self.results)
        scores = [result.total for result in self.greedy if result.total is not None]
        if scores:
            values["reward/greedy_mean"] = sum(scores) / len(scores)
        if self.selections:
            values |= added_up(self.selections).metrics()
        return values | {
            "groups/sampling_rounds": float(self.num_rounds),
            "groups/extra_prompts": float(self.num_extra_prompts),
        }


def added_up(items: Sequence[Numbers]) -> Numbers:
    """Dataclasses of numbers, field by field."""
    kind = type(items[0])
    return kind(**{part.name: sum(getattr(item, part.name) for item in items) for part in fields(kind)})
