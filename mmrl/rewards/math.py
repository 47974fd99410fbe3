"""The reward `math`: the answer equals the reference as mathematics."""

from __future__ import annotations

import re
from typing import ClassVar

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.choice import find_choice
from mmrl.rewards.find import find_answer
from mmrl.rewards.math_answer import read_answer

_LETTERS = "ABCDEFGHIJ"


class MathReward(Reward):
    """1 or 0. The answer is read from the last box (or the last boxes together, where the reference has as many
    elements), else from the last 'Answer:' or 'answer is', else from the last formula or number, unless a box was
    begun.

    Comparing may take for ever on some input, so it runs under a deadline; an error inside it counts as 'not equal'.
    """

    isolated: ClassVar[bool] = True

    def __init__(self, config: MathRewardConfig) -> None:
        self.preload()

    @classmethod
    def preload(cls) -> None:
        import mmrl.rewards.math_compare  # noqa: F401  (SymPy: a second, and only worker processes need it)

    def score(self, item: RewardItem) -> Score:
        from mmrl.rewards.math_compare import answers_equal, can_be_compared

        gold = read_answer(item.answer)
        if re.fullmatch(rf"[{_LETTERS}]", gold.text):
            return _score_letter(gold.text, item.response)
        found = find_answer(item.response, num_elements=len(gold.items))
        if found is None:
            return Score(0.0, None, "no answer in the response")
        text, place = found
        if _names_option(text, gold.label) or answers_equal(gold, read_answer(text)):
            return Score(1.0, text, f"equals the reference {item.answer!r} ({place})")
        note = "" if can_be_compared(gold) else "; the reference does not parse as mathematics, it was compared as text"
        return Score(0.0, text, f"does not equal the reference {item.answer!r} ({place}){note}")


def _names_option(text: str, label: str | None) -> bool:
    """Whether the answer is no more than the letter in front of the reference, `C` for `(C) 12`."""
    return label is not None and read_answer(text).text == label


def _score_letter(gold: str, response: str) -> Score:
    chosen = find_choice(response, _LETTERS)
    if chosen is None:
        return Score(0.0, None, f"no letter in the response; the reference is {gold}")
    return Score(float(chosen == gold), chosen, f"{chosen} {'is' if chosen == gold else 'is not'} the reference {gold}")
