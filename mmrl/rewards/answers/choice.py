"""The reward `choice`: the chosen letter equals the reference letter."""

from __future__ import annotations

import re
from functools import lru_cache

from mmrl.config.reward import ChoiceRewardConfig
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.text import answer_after_phrase, last_box, normalise_width, unwrap

_LETTERS_THAT_ARE_WORDS = "AI"
_WORDS_AFTER_A_CHOICE = "because|since|as|for|which|is|so|with|due|that"
_NAMES_OF_A_CHOICE = r"(?:(?:(?i:the|option|choice|answer|letter)\s*)+|选项|选)?"
_BEFORE_A_LETTER = _NAMES_OF_A_CHOICE + r"[\s:]*[*_]*[(\[]?\s*(?:\\(?:text|mathrm|textbf|mathbf)\{\s*[(\[]?)?"


class ChoiceReward(Reward):
    """1 or 0. The letter is read from the last box; if that holds none, from the last 'Answer:' or 'answer is'; if
    there is none, from a last line that is nothing but a letter. Letters inside formulas or words never count."""

    def __init__(self, config: ChoiceRewardConfig) -> None:
        self._letters = "".join(dict.fromkeys(config.choices.upper()))

    def score(self, item: RewardItem) -> Score:
        reference = read_letter(item.answer, self._letters)
        if reference is None:
            raise RewardFailure(f"the reference answer {item.answer!r} is not one of the letters {self._letters}")
        chosen = find_choice(item.response, self._letters)
        if chosen is None:
            return Score(0.0, None, f"no choice among {self._letters} in a box, an answer line or the last line")
        verdict = "is" if chosen == reference else "is not"
        return Score(float(chosen == reference), chosen, f"{chosen} {verdict} the reference {reference}")


def find_choice(response: str, letters: str) -> str | None:
    """The letter that a response chooses, upper case, or None."""
    text = normalise_width(response)
    lines = [line for line in text.splitlines() if line.strip()]
    for place in (last_box(text), answer_after_phrase(text)):
        if place is not None and (letter := read_letter(place, letters)):
            return letter
    if not lines:
        return None
    last = unwrap(lines[-1])
    bare = _patterns(letters)[1].fullmatch(last) or _named(letters).fullmatch(last)
    if bare is None and len(lines) == 1:
        bare = _labelled(letters).fullmatch(last)
    return bare.group("letter").upper() if bare else None


def _named(letters: str) -> re.Pattern[str]:
    """`Option C is correct`."""
    verdict = r"is\s+(?:the\s+)?(?:correct|right|true|answer)(?:\s+(?:one|option|choice|answer))?"
    return re.compile(
        rf"(?i:(?:so|thus|hence|therefore),?\s+)?(?i:the\s+)?(?i:option|choice|answer|statement)\s+[*(]*(?P<letter>[{re.escape(letters)}])[*)]*\s+(?i:{verdict})[.!]?"
    )


def _labelled(letters: str) -> re.Pattern[str]:
    """`(B) 42`, where that is the whole response: an option copied with its letter."""
    return re.compile(
        rf"[*]*[(\[](?P<letter>[{re.escape(letters)}])[)\]][*]*\s+(?!.*[(\[][{re.escape(letters)}][)\]]).{{1,200}}"
    )


def read_letter(text: str, letters: str) -> str | None:
    """The letter of a short text that is one choice: `E`, `(e)`, `\\text{E}`, `E.`, `E: words`, `Option E`, `选项E`.
    Several letters, as in `A, B`, are no choice."""
    text = unwrap(normalise_width(text))
    several, *single = _patterns(letters)
    if several.match(text):
        return None
    for pattern in single:
        if match := pattern.match(text):
            return match.group("letter").upper()
    return None


@lru_cache(maxsize=16)
def _patterns(letters: str) -> tuple[re.Pattern[str], ...]:
    """Several letters; a letter that is all there is (in either case); a capital with a mark behind it; a capital with
    words behind it.

    A capital that is a word too ('A polygon', 'I think') needs a mark or a word such as 'because' behind it.
    """
    every = re.escape(letters)
    others = re.escape("".join(letter for letter in letters if letter not in _LETTERS_THAT_ARE_WORDS))
    start = _BEFORE_A_LETTER + rf"(?P<letter>[{every}])"
    behind = r"\s*\}?[)\]]?[*_]*"
    patterns = [
        rf"{start}{behind}(?:\s*(?:,|;|/|&|\band\b|\bor\b|和|或)\s*)+[(\[]?[{every}](?![A-Za-z])",
        rf"{_BEFORE_A_LETTER}(?P<letter>(?i:[{every}])){behind}[.,:;)]?\s*$",
        rf"{start}(?:{behind}[.:;,)]|\s*\}}?[)\]]|\}}|[*_]{{2}}|\s*[-–—]\s)(?!\d)",
        rf"{start}\s+(?:{_WORDS_AFTER_A_CHOICE})\b",
    ]
    if others:
        patterns.append(rf"{_BEFORE_A_LETTER}(?P<letter>[{others}])\s+(?!and\b|or\b)[a-zA-Z]{{2,}}")
    return tuple(re.compile(pattern) for pattern in patterns)
