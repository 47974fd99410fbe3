"""The reward `keyword`: a penalty for words that a response should not hold."""

from __future__ import annotations

import re

from mmrl.config.reward import KeywordRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.text import normalise_width


class KeywordReward(Reward):
    """Minus the number of occurrences, down to -max_penalty. A keyword that begins or ends with a letter or digit
    matches only where the word begins or ends there ('art' is not in 'party'); any run of space matches any other."""

    def __init__(self, config: KeywordRewardConfig) -> None:
        flags = re.IGNORECASE if config.ignore_case else re.NOFLAG
        self._patterns = {keyword: re.compile(_pattern(keyword), flags) for keyword in config.keywords}
        self._max_penalty = config.max_penalty

    def score(self, item: RewardItem) -> Score:
        text = normalise_width(item.response)
        counts = {keyword: len(pattern.findall(text)) for keyword, pattern in self._patterns.items()}
        found = {keyword: count for keyword, count in counts.items() if count}
        if not found:
            return Score(0.0, None, "none of the keywords")
        listing = ", ".join(f"{keyword!r} x{count}" for keyword, count in found.items())
        return Score(-min(float(sum(found.values())), self._max_penalty), next(iter(found)), f"found {listing}")


def _pattern(keyword: str) -> str:
    words = normalise_width(keyword).split()
    body = r"\s+".join(re.escape(word) for word in words)
    before = r"(?<![A-Za-z0-9_])" if re.match(r"[A-Za-z0-9_]", words[0]) else ""
    after = r"(?![A-Za-z0-9_])" if re.search(r"[A-Za-z0-9_]$", words[-1]) else ""
    return before + body + after
