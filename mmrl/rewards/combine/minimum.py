"""The reward `min`: the smallest of several."""

from __future__ import annotations

from mmrl.config.reward import MinRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.combine.inner import Build, InnerReward, combined


class MinReward(Reward):
    """min over the inner rewards of weight · value; no score where one of them has none."""

    def __init__(self, config: MinRewardConfig, build: Build) -> None:
        self._rewards = [InnerReward(inner, build) for inner in config.rewards]

    def score(self, item: RewardItem) -> Score:
        scores = [reward.score(item) for reward in self._rewards]
        values = [score.value for score in scores if score.value is not None]
        return combined(min(values) if len(values) == len(scores) else None, scores)
