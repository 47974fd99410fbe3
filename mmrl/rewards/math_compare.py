"""Whether an answer equals the reference, as mathematics.

Structure is compared here (sets, tuples, intervals, lists, units, words), single expressions by plain numbers first
and then by math-verify. What math-verify gets wrong on whole answers (order and brackets, fused tuples, units thrown
away, words taken for products) is thus kept from it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import I, Symbol

from mmrl.rewards.latex import strip_text_commands, text_key
from mmrl.rewards.math_answer import MathAnswer, is_words
from mmrl.rewards.numbers import PlainNumber, has_huge_power, read_number
from mmrl.rewards.units import conversion_factor, is_known_unit, split_unit

for _noisy in ("math_verify.parser", "math_verify.grader", "latex2sympy2_extended.math_normalization"):
    logging.getLogger(_noisy).setLevel(logging.ERROR)  # they warn once a process that no timeout of theirs is set

_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\{\\circ\}")
_SYNTAX = (
    LatexExtractionConfig(
        boxed_match_priority=-1,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
        ),
    ),
)


def answers_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Whether `answer` says the same as `gold`. Not symmetric: the reference decides what counts.

    Errors inside SymPy count as 'not equal'. It may take for ever on some input: run it under a deadline.
    """
    if not _names_agree(gold, answer):
        return _equations_equal(gold, answer)
    if gold.kind == "value" and answer.kind == "value":
        return _values_equal(gold, answer) or _equations_equal(gold, answer)
    if gold.kind == "value":
        return _value_equals_group(gold, answer)
    if answer.kind == "value":
        return _group_equals_value(gold, answer)
    if gold.kind == "ordered":
        is_same = answer.kind == "ordered" and answer.brackets == gold.brackets
        is_bare = answer.kind == "list" and gold.brackets == "()"
        return (is_same or is_bare) and _all_equal(gold.items, answer.items)
    if answer.kind == "ordered":
        return gold.kind == "list" and answer.brackets == "()" and _all_equal(gold.items, answer.items)
    if _match_in_any_order(gold.items, answer.items):
        return True
    return "union" in (gold.kind, answer.kind) and _symbolically_equal(gold.text, answer.text)


def can_be_compared(gold: MathAnswer) -> bool:
    """Whether a reference means something: every part of it is words, a number or an expression that parses."""
    if gold.kind != "value":
        return bool(gold.items) and all(can_be_compared(item) for item in gold.items)
    if not gold.text:
        return False
    value, _ = split_unit(gold.text)
    return is_words(gold.text) or read_number(value) is not None or _to_sympy(value) is not None


def _names_agree(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`x = 1` is not `y = 1`; a name on one side only, and longer names, do not matter."""
    if gold.name is None or answer.name is None or gold.name == answer.name:
        return True
    return not (gold.name.isalpha() and answer.name.isalpha() and len(gold.name) == len(answer.name) == 1)


def _equations_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Two equations of one curve, `y = 2x + 1` and `2x - y + 1 = 0`."""
    sides = [f"{side.name}={side.text}" if side.name else side.text for side in (gold, answer)]
    is_pair = gold.kind == answer.kind == "value" and all("=" in side for side in sides)
    return (
        is_pair and (gold.is_equation or answer.is_equation or gold.name != answer.name) and _symbolically_equal(*sides)
    )


def _values_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    if text_key(gold.text) == text_key(answer.text):
        return True
    if is_words(gold.text) or is_words(answer.text):
        return _word_key(gold.text) == _word_key(answer.text)
    if gold.is_equation != answer.is_equation and not (gold.is_relation or answer.is_relation):
        return answer.is_equation and _identity_ends_in(gold, answer)
    (gold_value, gold_unit), (value, unit) = split_unit(gold.text), split_unit(answer.text)
    if (gold_unit or unit) and _quantities_equal(gold.text, answer.text):
        return True  # what looks like a unit may be a variable: d/2 and 1/2 d
    if _units_clash(gold_unit, unit):
        return False
    if _quantities_equal(gold_value, value):
        return True
    has_percent = [gold_unit == "%", unit == "%"]
    return (
        any(has_percent) and not all(has_percent) and _percent_equals(gold_value, value, gold_is_percent=has_percent[0])
    )


def _identity_ends_in(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`x + 2 - 1 = x + 1` gives `x + 1`, since both sides are one; `2x + 1 = 5` does not give 5."""
    sides = [side.strip() for side in answer.text.split("=")]
    return all(_quantities_equal(side, sides[-1]) for side in sides) and _quantities_equal(gold.text, sides[-1])


def _units_clash(gold_unit: str | None, unit: str | None) -> bool:
    """Whether both have a unit and they are not one, as mph and mi/h are. Words that are no unit of measurement
    (`5 apples`) do not matter: the question says what is counted."""
    if gold_unit is None or unit is None or not (is_known_unit(gold_unit) and is_known_unit(unit)):
        return False
    return conversion_factor(unit, gold_unit) != 1


def _quantities_equal(gold: str, answer: str) -> bool:
    gold_number, number = read_number(gold), read_number(answer)
    if gold_number is not None and number is not None:
        return gold_number.equals(number)
    return text_key(gold) == text_key(answer) or _symbolically_equal(gold, answer)


def _percent_equals(gold: str, answer: str, *, gold_is_percent: bool) -> bool:
    """50 % is 0.5 too (that it is 50 as well, with the sign left out, was tried before)."""
    numbers: list[PlainNumber | None] = [read_number(gold), read_number(answer)]
    if numbers[0] is None or numbers[1] is None:
        return False
    gold_number, number = numbers[0], numbers[1]
    return gold_number.over(100).equals(number) if gold_is_percent else gold_number.equals(number.over(100))


def _value_equals_group(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`x < 3` against `(-\\infty, 3)`; `5` against `\\{5\\}`."""
    if answer.kind == "set" and len(answer.items) == 1:
        return answers_equal(gold, answer.items[0])
    return (gold.is_relation or "mathbb" in gold.text) and _symbolically_equal(gold.text, answer.text)


def _group_equals_value(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`(0, 1)` against `0 < x < 1`; `\\{5\\}` against `5`."""
    if gold.kind == "set" and len(gold.items) == 1:
        return answers_equal(gold.items[0], answer)
    return (answer.is_relation or "mathbb" in answer.text) and _symbolically_equal(gold.text, answer.text)


def _all_equal(gold: Sequence[MathAnswer], answer: Sequence[MathAnswer]) -> bool:
    return len(gold) == len(answer) and all(map(answers_equal, gold, answer))


def _match_in_any_order(gold: Sequence[MathAnswer], answer: Sequence[MathAnswer]) -> bool:
    """Each element has its own counterpart. Elements said twice count once."""
    gold, left = _distinct(gold), _distinct(answer)
    if len(gold) != len(left):
        return False
    for item in gold:
        partner = next((other for other in left if answers_equal(item, other)), None)
        if partner is None:
            return False
        left.remove(partner)
    return True


def _distinct(items: Sequence[MathAnswer]) -> list[MathAnswer]:
    return list({(item.name, text_key(item.text)): item for item in items}.values())


def _word_key(tidied: str) -> str:
    words = strip_text_commands(tidied).casefold().replace("-", " ").split()
    return " ".join(word.strip(".,!'\"") for word in words if word not in ("the", "a", "an"))


def _symbolically_equal(gold: str, answer: str) -> bool:
    gold_expression, expression = _to_sympy(gold), _to_sympy(answer)
    if gold_expression is None or expression is None:
        return False
    return bool(verify([gold_expression], [expression], allow_set_relation_comp=True, timeout_seconds=None))


@lru_cache(maxsize=4096)
def _to_sympy(text: str) -> Any | None:
    """The expression of a tidied text, None where it does not parse or is too large to work out.

    The timeout of math-verify stays off: it uses signals.
    """
    if not text.strip() or has_huge_power(text):
        return None
    in_radians = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    parsed = parse(f"${in_radians}$", _SYNTAX, fallback_mode="no_fallback", parsing_timeout=None)
    return _with_uniform_symbols(parsed[0]) if parsed else None


def _with_uniform_symbols(expression: Any) -> Any:
    """Every variable real and `i` the imaginary unit: the parser makes symbols of one name unequal, depending on
    whether it takes the text around them for complex."""
    symbols = getattr(expression, "free_symbols", ())
    wanted = {symbol: I if symbol.name == "i" else Symbol(symbol.name, real=True) for symbol in symbols}
    changed = {symbol: new for symbol, new in wanted.items() if symbol != new}
    return expression.xreplace(changed) if changed else expression
