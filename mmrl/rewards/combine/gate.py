"""The reward `gate`: one reward, paid only where another one says so."""

from __future__ import annotations

from mmrl.config.reward import GateRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.combine.inner import Build, InnerReward, combined


class GateReward(Reward):
    """The reward's value where the condition's is at least `at_least`, else `otherwise`."""

    def __init__(self, config: GateRewardConfig, build: Build) -> None:
        self._condition, self._reward = InnerReward(config.condition, build), InnerReward(config.reward, build)
        self._at_least, self._otherwise = config.at_least, config.otherwise

    def score(self, item: RewardItem) -> Score:
        condition = self._condition.score(item)
        if condition.value is None:
            return combined(None, [condition])
        if condition.value < self._at_least:
            return combined(self._otherwise, [condition])
        reward = self._reward.score(item)
        return combined(reward.value, [condition, reward])
