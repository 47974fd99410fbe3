"""The reward `veto`: a filter that overrules all other rewards of a response."""

from __future__ import annotations

from mmrl.config.reward import VetoRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.combine.inner import Build, InnerReward, combined


class VetoReward(Reward):
    """1 where the inner reward is at least `at_least`, else 0; the runner then sets the response's total.

    Its mean is the share of responses that pass. A filter that fails leaves the response without a total, whatever its
    weight: nobody knows whether it would have passed.
    """

    def __init__(self, config: VetoRewardConfig, build: Build) -> None:
        self._reward = InnerReward(config.reward, build)
        self._at_least = config.at_least

    def score(self, item: RewardItem) -> Score:
        inner = self._reward.score(item)
        return combined(None if inner.value is None else float(inner.value >= self._at_least), [inner])
