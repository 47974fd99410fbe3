"""The reward `repetition`: a penalty for saying the same again and again."""

from __future__ import annotations

import re
from collections import Counter

from mmrl.config.reward import RepetitionRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.text import normalise_width

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]")


class RepetitionReward(Reward):
    """-max_penalty · (n - u) / (n - 1), with n sequences of `ngram` words in the response and u different ones.

    0 where none is repeated, -max_penalty where all are the same; 0 for a response with fewer than two sequences.
    """

    def __init__(self, config: RepetitionRewardConfig) -> None:
        self._ngram = config.ngram
        self._max_penalty = config.max_penalty

    def score(self, item: RewardItem) -> Score:
        words = _WORD.findall(normalise_width(item.response).casefold())
        sequences = Counter(tuple(words[start : start + self._ngram]) for start in range(len(words) - self._ngram + 1))
        total = sequences.total()
        if total < 2 or total == len(sequences):
            return Score(0.0, None, f"no sequence of {self._ngram} words is repeated")
        (most, count), *_ = sequences.most_common(1)
        share = (total - len(sequences)) / (total - 1)
        return Score(-self._max_penalty * share, None, f"{share:.0%} repeated, most often {' '.join(most)!r} x{count}")
