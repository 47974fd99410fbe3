"""The reward `length`: a bonus for short responses."""

from __future__ import annotations

from mmrl.config.reward import LengthRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score


class LengthReward(Reward):
    """min(1, (max_tokens - num_tokens) / (max_tokens - free_tokens)), never below 0.

    A response cut at the limit (finish reason `length`) gets no bonus: it is not short, it is unfinished. An empty
    response gets none either.
    """

    def __init__(self, config: LengthRewardConfig) -> None:
        self._free, self._max = config.free_tokens, config.max_tokens

    def score(self, item: RewardItem) -> Score:
        if item.finish_reason == "length":
            return Score(0.0, None, f"cut at {item.num_tokens} tokens: no bonus")
        if not item.response.strip():
            return Score(0.0, None, "empty: no bonus")
        share = (self._max - item.num_tokens) / (self._max - self._free)
        value = min(1.0, max(0.0, share))
        return Score(value, None, f"{item.num_tokens} tokens; 1 up to {self._free}, 0 from {self._max}")
