"""The reward `overlong`: DAPO's penalty for responses that come near the limit."""

from __future__ import annotations

from mmrl.config.reward import OverlongRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score


class OverlongReward(Reward):
    """min(-(length - (limit - buffer)) / buffer · penalty, 0), not below -penalty.

    Source: arXiv 2503.14476, soft overlong punishment.
    """

    def __init__(self, config: OverlongRewardConfig) -> None:
        self._limit, self._buffer, self._penalty = config.limit, config.buffer, config.penalty

    def score(self, item: RewardItem) -> Score:
        excess = item.num_tokens - (self._limit - self._buffer)
        value = max(min(-excess / self._buffer, 0.0), -1.0) * self._penalty
        return Score(value, None, f"{item.num_tokens} tokens; no penalty up to {self._limit - self._buffer}")
