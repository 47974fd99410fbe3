"""The reward `format`: the response matches a pattern."""

from __future__ import annotations

import regex

from mmrl.config.reward import FormatRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score


class FormatReward(Reward):
    """1 or 0. Matching runs under a time limit, since a careless pattern can take for ever on some texts."""

    def __init__(self, config: FormatRewardConfig) -> None:
        self._pattern = regex.compile(config.pattern)
        self._timeout_s = config.timeout_s

    def score(self, item: RewardItem) -> Score:
        try:
            matched = self._pattern.fullmatch(item.response, timeout=self._timeout_s) is not None
        except TimeoutError:
            raise RewardFailure(
                f"matching the pattern {self._pattern.pattern!r} took longer than {self._timeout_s:g} s; "
                "rewrite it without nested repetition such as (a+)+"
            ) from None
        if matched:
            return Score(1.0, None, "matches the pattern")
        return Score(0.0, None, f"does not match the pattern {self._pattern.pattern}")
