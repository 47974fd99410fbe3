"""What the rewards that are made of others share: scoring the inner ones and telling of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmrl.config.reward import RewardBase, VetoRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score

Build = Callable[[RewardBase], Reward]


@dataclass(frozen=True)
class InnerScore:
    """What an inner reward gave; `value` is already times its weight."""

    name: str
    value: float | None
    score: Score

    @property
    def note(self) -> str:
        shown = "no score" if self.value is None else f"{self.value:g}"
        return f"{self.name} {shown}" + (f" ({self.score.explanation})" if self.score.explanation else "")


class InnerReward:
    """A reward inside another one. build: makes it from its config."""

    def __init__(self, config: RewardBase, build: Build) -> None:
        self._name = config.part_name
        self._weight = _inner_weight(config)
        self._reward = build(config)

    def score(self, item: RewardItem) -> InnerScore:
        """Raises RewardFailure, with the inner reward's name, where that cannot score the response."""
        try:
            score = self._reward.score(item)
        except RewardFailure as failure:
            raise RewardFailure(f"its reward '{self._name}': {failure}") from failure
        return InnerScore(self._name, None if score.value is None else self._weight * score.value, score)


def _inner_weight(config: RewardBase) -> float:
    """Its weight. A veto's own is 0, since it adds nothing to a total; inside another reward its 1 or 0 counts."""
    return config.weight or (1.0 if isinstance(config, VetoRewardConfig) else 0.0)


def combined(value: float | None, scores: list[InnerScore]) -> Score:
    """A score that tells of its inner ones: their values as extras, their explanations, the first answer extracted."""
    return Score(
        value=value,
        extracted=next((inner.score.extracted for inner in scores if inner.score.extracted is not None), None),
        explanation="; ".join(inner.note for inner in scores),
        extras={inner.name: inner.value for inner in scores if inner.value is not None},
    )
