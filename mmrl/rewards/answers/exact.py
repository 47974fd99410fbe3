"""The reward `exact`: the answer equals the reference as text."""

from __future__ import annotations

from mmrl.config.reward import ExactRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.text import last_box, normalise_width, unwrap


class ExactReward(Reward):
    """1 or 0. Both sides are compared after width normalisation, with wrappers such as `$...$` and `\\text{...}`
    removed and runs of space as one."""

    def __init__(self, config: ExactRewardConfig) -> None:
        self._config = config

    def score(self, item: RewardItem) -> Score:
        reference = self._canonical(item.answer)
        response = normalise_width(item.response)
        found = last_box(response) if self._config.boxed else response.strip() or None
        if found is None:
            return Score(0.0, None, r"no \boxed{...} with an answer" if self._config.boxed else "the response is empty")
        answer = self._canonical(found)
        if answer == reference:
            return Score(1.0, found, "equals the reference")
        return Score(0.0, found, f"{answer!r} is not the reference {reference!r}")

    def _canonical(self, text: str) -> str:
        text = " ".join(unwrap(normalise_width(text)).split())
        return text.casefold() if self._config.ignore_case else text
