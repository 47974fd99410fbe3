"""The reward `math`: the answer equals the reference as mathematics."""

from __future__ import annotations

import re
from typing import ClassVar

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards.base import Reward, RewardItem, Score
from mmrl.rewards.choice import find_choice
from mmrl.rewards.math_answer import MathAnswer, read_answer
from mmrl.rewards.text import answer_after_phrase, normalise_width, trailing_boxes, unwrap

_LETTERS = "ABCDEFGHIJ"
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?\s*%?(?![\w])")
_PROSE = re.compile(r"(?:[A-Za-z]{2,}[,.]?\s+){2,}[A-Za-z]{2,}")
_END_OF_ANSWER = re.compile(r"[.;!?](?=\s|$)|,?\s+(?:because|since|as|which|so|where|when|by)\b|,\s+(?=[a-z]{2,}\s)")


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
        found = find_answer(item.response, gold)
        if found is None:
            return Score(0.0, None, "no answer in the response")
        text, place = found
        if answers_equal(gold, read_answer(text)):
            return Score(1.0, text, f"equals the reference {item.answer!r} ({place})")
        note = "" if can_be_compared(gold) else "; the reference does not parse as mathematics, it was compared as text"
        return Score(0.0, text, f"does not equal the reference {item.answer!r} ({place}){note}")


def find_answer(response: str, gold: MathAnswer) -> tuple[str, str] | None:
    """The answer in a response and where it was found, or None."""
    boxes = trailing_boxes(response)
    if boxes:
        several = len(boxes) > 1 and len(boxes) == len(gold.items)
        return (", ".join(boxes), "the last boxes") if several else (boxes[-1], "the last box")
    response = normalise_width(response)
    if phrase := answer_after_phrase(response):
        return _leading_answer(phrase), "after 'answer'"
    if "\\boxed" in response:
        return None  # a box was begun, or only spoken of: whatever number stands there is not given as the answer
    if formulas := _FORMULA.findall(response):
        return next(filter(None, formulas[-1])).strip(), "the last formula"
    bare = unwrap(response.strip())
    if bare and "\n" not in bare and not _PROSE.search(bare):
        return bare, "the whole response"
    numbers = _NUMBER.findall(response)
    return (numbers[-1].strip(), "the last number") if numbers else None


def _leading_answer(phrase: str) -> str:
    """The answer at the start of what follows 'answer is', without the sentence that goes on behind it."""
    if formula := _FORMULA.search(phrase):
        return next(filter(None, formula.groups())).strip()
    end = _END_OF_ANSWER.search(phrase)
    return unwrap(phrase[: end.start()] if end else phrase) or phrase


def _score_letter(gold: str, response: str) -> Score:
    chosen = find_choice(response, _LETTERS)
    if chosen is None:
        return Score(0.0, None, f"no letter in the response; the reference is {gold}")
    return Score(float(chosen == gold), chosen, f"{chosen} {'is' if chosen == gold else 'is not'} the reference {gold}")
