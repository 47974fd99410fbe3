"""Whole numbers in words: English up to 999, Chinese up to 999."""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {
    **{word: number for number, word in enumerate((*_ONES, *_TEENS), start=1)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
    **dict.fromkeys(("zero", "no", "none"), 0),
    "a": 1,
}
_SMALL = rf"(?:{'|'.join(_TENS)})(?:[\s-]+(?:{'|'.join(_ONES)}))?|{'|'.join((*_TEENS, *_ONES, 'zero', 'none', 'no'))}"
_ENGLISH = re.compile(
    rf"\b(?:(?P<hundreds>a|{'|'.join(_ONES)})[\s-]+hundred(?:(?:\s+and)?\s+(?P<rest>{_SMALL}))?|(?P<small>{_SMALL}))\b",
    re.IGNORECASE,
)
_DIGITS = {**{digit: number for number, digit in enumerate("零一二三四五六七八九")}, "两": 2, "〇": 0}
_CHINESE_RUN = re.compile("[零〇一二两三四五六七八九十百]+")
_CHINESE = re.compile(r"(?:([一二两三四五六七八九])?百零?)?(?:([一二三四五六七八九])?十)?([零〇一二两三四五六七八九])?")


def numbers_in_words(text: str) -> list[int]:
    """The numbers that a text names in words, in order: `twenty-one`, `a hundred and five`, `no`, `二十三`."""
    if english := [_english(match) for match in _ENGLISH.finditer(text)]:
        return english
    runs = [_CHINESE.fullmatch(run) for run in _CHINESE_RUN.findall(text)]
    return [_chinese(match) for match in runs if match is not None]


def number_of_words(text: str) -> Fraction | None:
    """The number that a text is in words, as a whole: `twenty one`, `二十三`, `三分之二`, `百分之五`; None for anything
    else."""
    if (match := _ENGLISH.fullmatch(text)) and text not in ("no", "none"):
        return Fraction(_english(match))
    bottom, separator, top = text.rpartition("分之")
    numerator, denominator = _chinese_number(top), _chinese_number(bottom) if separator else 1
    return Fraction(numerator, denominator) if numerator is not None and denominator else None


def _chinese_number(text: str) -> int | None:
    match = _CHINESE.fullmatch(text)
    return _chinese(match) if match is not None and text else None


def _english(match: re.Match[str]) -> int:
    hundreds = 100 * _VALUES[match["hundreds"].lower()] if match["hundreds"] else 0
    words = re.split(r"[\s-]+", (match["rest"] or match["small"] or "").lower())
    return hundreds + sum(_VALUES[word] for word in words if word)


def _chinese(match: re.Match[str]) -> int:
    text = match.group()
    hundreds = _DIGITS[match[1] or "一"] if "百" in text else 0
    tens = _DIGITS[match[2] or "一"] if "十" in text else 0
    return 100 * hundreds + 10 * tens + (_DIGITS[match[3]] if match[3] else 0)
