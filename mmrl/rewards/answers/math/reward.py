"""The reward `math`: the answer equals the reference as mathematics."""

from __future__ import annotations

import re
from typing import ClassVar

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards.answers.choice import find_choice
from mmrl.rewards.answers.find import find_answer
from mmrl.rewards.answers.math.answer import MathAnswer, read_answer
from mmrl.rewards.answers.math.limits import OutOfTimeError, clock, why_too_large
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score

_LETTERS = "ABCDEFGHIJ"


class MathReward(Reward):
    """1 or 0. The answer is read from the last box (or the last boxes together, where the reference has as many
    elements), else from the last 'Answer:' or 'answer is', else from the last formula or number, unless a box was
    begun.

    A response whose answer is too large to work out, or takes longer to compare than two fifths of `timeout_s`, is
    wrong: nothing that it holds makes its score missing. A reference that takes so long is a failure. An error inside
    comparing counts as 'not equal'.
    """

    isolated: ClassVar[bool] = True

    def __init__(self, config: MathRewardConfig) -> None:
        self._seconds = 0.4 * config.timeout_s
        self.preload()

    @classmethod
    def preload(cls) -> None:
        import mmrl.rewards.answers.math.compare  # noqa: F401  (SymPy: a second, and only worker processes need it)

    def score(self, item: RewardItem) -> Score:
        gold, can_be_compared = self._read_reference(item.answer)
        if re.fullmatch(rf"[{_LETTERS}]", gold.text):
            return _score_letter(gold.text, item.response)
        found = find_answer(item.response, num_elements=len(gold.items))
        if found is None:
            return Score(0.0, None, "no answer in the response")
        text, place = found
        if text.strip() != item.answer.strip() and (trouble := why_too_large(text)):
            return Score(0.0, text, f"too large to compare: {trouble} ({place})")
        try:
            with clock(self._seconds):
                is_equal = self._equals(gold, text)
        except (OutOfTimeError, MemoryError, RecursionError) as error:
            slow = f"took more than {self._seconds:g} s of processor time"
            trouble = slow if isinstance(error, OutOfTimeError) else "took too much memory"
            return Score(0.0, text, f"comparing it with the reference {item.answer!r} {trouble}: it is wrong ({place})")
        if is_equal:
            return Score(1.0, text, f"equals the reference {item.answer!r} ({place})")
        note = "" if can_be_compared else "; the reference does not parse as mathematics, it was compared as text"
        return Score(0.0, text, f"does not equal the reference {item.answer!r} ({place}){note}")

    def _read_reference(self, answer: str) -> tuple[MathAnswer, bool]:
        """The reference, and whether it means something as mathematics.

        Raises:
            RewardFailure: reading it takes too long.
        """
        from mmrl.rewards.answers.math.compare import can_be_compared

        try:
            with clock(self._seconds):
                gold = read_answer(answer)
                return gold, can_be_compared(gold)
        except (OutOfTimeError, RecursionError) as error:
            raise RewardFailure(
                f"the reference answer {answer[:80]!r} cannot be worked out within {self._seconds:g} s"
            ) from error

    def _equals(self, gold: MathAnswer, text: str) -> bool:
        from mmrl.rewards.answers.math.compare import answers_equal

        return _names_option(text, gold.label) or answers_equal(gold, read_answer(text))


def _names_option(text: str, label: str | None) -> bool:
    """Whether the answer is no more than the letter in front of the reference, `C` for `(C) 12`."""
    return label is not None and read_answer(text).text == label


def _score_letter(gold: str, response: str) -> Score:
    chosen = find_choice(response, _LETTERS)
    if chosen is None:
        return Score(0.0, None, f"no letter in the response; the reference is {gold}")
    return Score(float(chosen == gold), chosen, f"{chosen} {'is' if chosen == gold else 'is not'} the reference {gold}")
