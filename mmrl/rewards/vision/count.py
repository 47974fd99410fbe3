"""The reward `count`: the answer is how many there are."""

from __future__ import annotations

import re
from decimal import Decimal

from mmrl.config.reward import CountRewardConfig
from mmrl.rewards.answers.number_words import numbers_in_words
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.text import answer_after_phrase, last_box, normalise_width, unwrap

_NUMBER = re.compile(r"(?<![A-Za-z0-9_.,])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![A-Za-z0-9_])")


class CountReward(Reward):
    """1 for the right number, else 0, or 1 - |difference| / reference where `partial` is set.

    The number is read, in digits or else in English or Chinese words, from the last box, else from what follows 'answer
    is' (the first there), else from the whole response (the last there).
    """

    def __init__(self, config: CountRewardConfig) -> None:
        self._partial = config.partial

    def score(self, item: RewardItem) -> Score:
        reference = next(iter(_counts(item.answer)), None)
        if reference is None or reference < 0 or reference % 1 != 0:
            raise RewardFailure(f"the reference answer {item.answer!r} is not a count such as 3")
        found = read_count(item.response)
        if found is None:
            return Score(0.0, None, "no number in the response")
        shown = _shown(found)
        if found == reference:
            return Score(1.0, shown, f"there are {shown}")
        near = max(0.0, 1.0 - float(abs(found - reference) / reference)) if reference and self._partial else 0.0
        return Score(near, shown, f"{shown} is not {_shown(reference)}")


def _shown(number: Decimal) -> str:
    written = f"{number:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def read_count(response: str) -> Decimal | None:
    """The number that a response gives, or None."""
    text = normalise_width(response)
    place = last_box(text)
    if place is None:
        place = answer_after_phrase(text)
    if place is not None:
        return next(iter(_counts(place)), None)
    return next(reversed(_counts(text)), None)


def _counts(text: str) -> list[Decimal]:
    """The numbers of a text in digits, or else in words. Of several words 'one' and 'no' are left out: they are more
    often no numbers (`the one on the left`)."""
    text = unwrap(normalise_width(text))
    if digits := _NUMBER.findall(text):
        return [Decimal(number.replace(",", "")) for number in digits]
    words = numbers_in_words(text)
    return [Decimal(number) for number in words if number > 1] or [Decimal(number) for number in words]
