"""Quantities written in several pieces as one: `2 million`, `1.5万`, `4 hours 30 minutes`, `1米20厘米`."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from mmrl.rewards.answers.latex import strip_text_commands
from mmrl.rewards.answers.units import conversion_factor, is_known_unit, unit_name

_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12, "万": 4, "亿": 8, "万亿": 12}
_SCALED = re.compile(
    r"(?<![\w.^_{,])(?P<number>\d{1,15}(?:\.\d{1,15})?)\s*(?P<opening>\\text\{\s*)?"
    r"(?P<scale>万亿|万|亿|(?:thousand|million|billion|trillion)\b)"
)
_PIECE = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*(?P<unit>[A-Za-z\u4e00-\u9fff]+\.?)\s*(?:,\s*|and\s+|又)?")


def with_scale_words(tidied: str) -> str:
    """Numbers with such a word behind them written out; other words in its `\\text{}` stay there."""

    def written_out(match: re.Match[str]) -> str:
        number = Decimal(match["number"]).scaleb(_SCALES[match["scale"]])
        return f"{number.normalize():f}" + (match["opening"] or "")

    return re.sub(r"\\text\{\s*\}", "", _SCALED.sub(written_out, tidied))


def with_one_unit(tidied: str) -> str:
    """A quantity in two or more known units of one kind, largest first, in the first of them; others as they are."""
    plain = strip_text_commands(tidied)
    pieces = list(_PIECE.finditer(plain))
    if len(pieces) < 2 or "".join(piece.group() for piece in pieces) != plain:
        return tidied
    units = [unit_name(piece["unit"]) for piece in pieces]
    factors = [conversion_factor(unit, units[0]) for unit in units]
    if not all(map(is_known_unit, units)) or any(factor is None for factor in factors):
        return tidied
    sizes = [factor for factor in factors if factor is not None]
    if sizes != sorted(set(sizes), reverse=True):
        return tidied
    total = sum(Fraction(piece["number"]) * size for piece, size in zip(pieces, sizes, strict=True))
    return rf"\frac{{{total.numerator}}}{{{total.denominator}}} \text{{{units[0]}}}"
