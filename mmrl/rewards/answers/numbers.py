"""Plain numbers as people write them: integers, decimals, fractions, mixed numbers and powers of ten."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

RELATIVE_TOLERANCE = Fraction(1, 10**6)
"""A decimal equals what it stands for to this share of it: 0.333333 is 1/3, 0.3333 is not."""

_MAX_DIGITS = 400
_MAX_POWER_DIGITS = 4000
_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"(?P<sign>[+-]?)\s*(?P<digits>{_INTEGER}(?:\.\d*)?|\.\d+)")
_REPEATING = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<whole>\d*)\.(?P<once>\d*)\s*\\(?:overline|bar|dot)\s*\{(?P<again>\d+)\}"
)
_INTEGER_POWER = re.compile(
    r"(?<![\d.])(?P<base>\d{1,4000})\s*\^\s*(?:\{\s*-?\s*(?P<braced>\d+)\s*\}|(?P<bare>\d+))(?!\s*\^)"
)
_IN_ROUND_BRACKETS = re.compile(r"\(\s*(-?\s*\d+)\s*\)")
_POWER = re.compile(r"(?P<base>[^\\]*?)\s*(?:\\times|\\cdot)\s*10\s*\^\s*\{?\s*(?P<exponent>[+-]?\d{1,3})\s*\}?")
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<whole>\d+\s*(?=\\frac)|\d+\s+(?=\d+\s*/))?"
    r"(?:\\frac\s*\{\s*(?P<top>[+-]?[\d.,]+)\s*\}\s*\{\s*(?P<bottom>[+-]?[\d.,]+)\s*\}|(?P<over>[\d.,]+)\s*/\s*(?P<under>[\d.,]+))"
)

_IN_TWO_BRACES = re.compile(r"\{\s*\{(-?\s*\d+)\}\s*\}")


@dataclass(frozen=True)
class PlainNumber:
    """is_rounded: it was written as a decimal, and may stand for a number with more digits."""

    value: Fraction
    is_rounded: bool

    def equals(self, other: PlainNumber) -> bool:
        """Exact between exact numbers; within RELATIVE_TOLERANCE where either is a decimal."""
        if self.value == other.value or not (self.is_rounded or other.is_rounded):
            return self.value == other.value
        larger = max(abs(self.value), abs(other.value))
        return abs(self.value - other.value) <= RELATIVE_TOLERANCE * larger

    def over(self, divisor: int) -> PlainNumber:
        return PlainNumber(self.value / divisor, self.is_rounded)


def read_number(text: str) -> PlainNumber | None:
    """The number that a tidied text is, or None. `1,000` is a thousand; `12,34` is no number; `009` is nine."""
    text = text.strip()
    if len(text) > _MAX_DIGITS:
        return None
    if match := _DECIMAL.fullmatch(text):
        return _signed(match["sign"], _decimal(match["digits"]))
    if match := _REPEATING.fullmatch(text):
        return _signed(match["sign"], PlainNumber(_repeating(match["whole"], match["once"], match["again"]), False))
    if match := _FRACTION.fullmatch(text):
        return _read_fraction(match)
    if match := _POWER.fullmatch(text):
        base = read_number(match["base"])
        return base and PlainNumber(base.value * Fraction(10) ** int(match["exponent"]), base.is_rounded)
    return None


def has_huge_power(text: str) -> bool:
    """Whether a power of plain numbers, worked out from the innermost, has thousands of digits: SymPy would try."""
    text = _without_brackets(text.replace("**", "^"))
    while match := _INTEGER_POWER.search(text):
        base, written = match["base"], match["braced"] or match["bare"]
        if len(written) > 9 or len(base) * int(written) > _MAX_POWER_DIGITS:
            return True
        exponent = int(written)
        text = _without_brackets(f"{text[: match.start()]}{int(base) ** exponent} {text[match.end() :]}")
    return False


def _without_brackets(text: str) -> str:
    """Exponents such as `{(10)}` and `(10)` as `{10}`."""
    return _IN_TWO_BRACES.sub(r"{\1}", _IN_ROUND_BRACKETS.sub(r"{\1}", text))


def _read_fraction(match: re.Match[str]) -> PlainNumber | None:
    top = read_number(match["top"] or match["over"])
    bottom = read_number(match["bottom"] or match["under"])
    if top is None or bottom is None or bottom.value == 0:
        return None
    whole = Fraction(int(match["whole"])) if match["whole"] else Fraction(0)
    value = PlainNumber(whole + top.value / bottom.value, top.is_rounded or bottom.is_rounded)
    return _signed(match["sign"], value)


def _decimal(digits: str) -> PlainNumber:
    digits = digits.replace(",", "")
    return PlainNumber(Fraction(digits if not digits.endswith(".") else digits[:-1]), "." in digits)


def _repeating(whole: str, once: str, again: str) -> Fraction:
    """0.1666… from `0`, `1`, `6`: the repeated digits over as many nines."""
    once_value = Fraction(int(whole + once or "0"), 10 ** len(once))
    return once_value + Fraction(int(again), (10 ** len(again) - 1) * 10 ** len(once))


def _signed(sign: str, number: PlainNumber) -> PlainNumber:
    return PlainNumber(-number.value, number.is_rounded) if sign == "-" else number
