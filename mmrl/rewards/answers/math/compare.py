"""Whether an answer equals the reference, as mathematics.

Structure is compared here (sets, tuples, intervals, lists, units, words), single expressions by plain numbers first
and then by math-verify. What math-verify gets wrong on whole answers (order and brackets, fused tuples, units thrown
away, words taken for products) is thus kept from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mmrl.rewards.answers.latex import strip_text_commands, text_key
from mmrl.rewards.answers.math.answer import MathAnswer
from mmrl.rewards.answers.math.forms import read_based, read_residue
from mmrl.rewards.answers.math.geometry import geometry_key, is_geometry
from mmrl.rewards.answers.math.region import is_region, regions_equal
from mmrl.rewards.answers.math.symbolic import symbolically_equal, to_sympy
from mmrl.rewards.answers.math.words import is_words, word_key
from mmrl.rewards.answers.number_words import number_of_words
from mmrl.rewards.answers.numbers import PlainNumber, read_number
from mmrl.rewards.answers.units import split_glued_unit, split_unit, units_agree

_FUNCTION = re.compile(r"([a-zA-Z])\([a-zA-Z]\)")


def answers_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Whether `answer` says the same as `gold`. Not symmetric: the reference decides what counts.

    Errors inside SymPy count as 'not equal'. It may take for ever on some input: run it under a deadline.
    """
    if gold.label and answer.label and gold.label != answer.label:
        return False
    if not _names_agree(gold, answer):
        return not _FUNCTION.fullmatch(gold.name or "") and _equations_equal(gold, answer)
    if gold.kind == "value" and answer.kind == "value":
        return _values_equal(gold, answer) or (not is_geometry(gold.text) and _equations_equal(gold, answer))
    if gold.kind == "value":
        return _value_equals_group(gold, answer)
    if answer.kind == "value":
        return _group_equals_value(gold, answer)
    if is_region(gold) and is_region(answer) and regions_equal(gold, answer):
        return True
    if "matrix" in (gold.kind, answer.kind):
        return _matrices_equal(gold, answer)
    if "ordered" in (gold.kind, answer.kind):
        return _tuples_equal(gold, answer)
    if _match_in_any_order(gold.items, answer.items):
        return True
    return "union" in (gold.kind, answer.kind) and symbolically_equal(gold.text, answer.text)


def can_be_compared(gold: MathAnswer) -> bool:
    """Whether a reference means something: every part of it is words, a number or an expression that parses."""
    if gold.kind != "value":
        return bool(gold.items) and all(can_be_compared(item) for item in gold.items)
    if not gold.text:
        return False
    value, _ = split_unit(gold.text)
    return (
        is_words(gold.text) or is_geometry(gold.text) or read_number(value) is not None or to_sympy(value) is not None
    )


def _names_agree(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`x = 1` is not `y = 1`, `f(x) = 1` not `g(x) = 1`; a name on one side only, and longer names, do not matter."""
    if gold.name is None or answer.name is None or gold.name == answer.name:
        return True
    functions = [_FUNCTION.fullmatch(name) for name in (gold.name, answer.name)]
    if functions[0] and functions[1]:
        return functions[0][1] == functions[1][1]
    return not (gold.name.isalpha() and answer.name.isalpha() and len(gold.name) == len(answer.name) == 1)


def _equations_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Two equations of one curve, `y = 2x + 1` and `2x - y + 1 = 0`."""
    sides = [f"{side.name}={side.text}" if side.name else side.text for side in (gold, answer)]
    is_pair = gold.kind == answer.kind == "value" and all("=" in side for side in sides)
    return (
        is_pair and (gold.is_equation or answer.is_equation or gold.name != answer.name) and symbolically_equal(*sides)
    )


def _values_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    if text_key(gold.text) == text_key(answer.text):
        return True
    if is_geometry(gold.text) or is_geometry(answer.text):
        return geometry_key(gold.text) == geometry_key(answer.text)
    if is_words(gold.text) or is_words(answer.text):
        return word_key(gold.text) == word_key(answer.text) or _number_words_equal(gold.text, answer.text)
    if gold.is_equation != answer.is_equation and not (gold.is_relation or answer.is_relation):
        return answer.is_equation and _identity_ends_in(gold, answer)
    gold_based, based = read_based(gold.text), read_based(answer.text)
    if gold_based or based:
        return _based_equal(gold, answer)
    if (gold_residue := read_residue(gold.text)) and (residue := read_residue(answer.text)):
        return gold_residue == residue
    (gold_value, gold_unit), (value, unit) = split_unit(gold.text), split_unit(answer.text)
    if gold_unit and not unit:
        value, unit = split_glued_unit(answer.text, gold_unit)
    are_numbers = read_number(gold_value) is not None and read_number(value) is not None
    if are_numbers and not units_agree(unit, gold_unit):
        return False
    if (gold_unit or unit) and _quantities_equal(gold.text, answer.text):
        return True  # what looks like a unit may be a variable: d/2 and 1/2 d
    if not units_agree(unit, gold_unit):
        return False
    if _quantities_equal(gold_value, value):
        return True
    has_percent = [gold_unit == "%", unit == "%"]
    return (
        any(has_percent) and not all(has_percent) and _percent_equals(gold_value, value, gold_is_percent=has_percent[0])
    )


def _number_words_equal(gold: str, answer: str) -> bool:
    """`seven` or `七` against `7`."""
    words, other = (gold, answer) if is_words(gold) else (answer, gold)
    named, number = number_of_words(word_key(words)), read_number(split_unit(other)[0])
    return named is not None and number is not None and number.value == named


def _based_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """The same digits in the same base; the base may be left out on one side. A number of base ten is a plain one."""
    gold_based, based = read_based(gold.text), read_based(answer.text)
    if gold_based and based:
        return gold_based == based
    known, other = (gold_based, answer.text) if gold_based else (based, gold.text)
    assert known is not None
    return known.digits == strip_text_commands(other).replace(" ", "").strip("()").upper()


def _identity_ends_in(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`x + 2 - 1 = x + 1` gives `x + 1`, since both sides are one; `2x + 1 = 5` does not give 5."""
    sides = [side.strip() for side in answer.text.split("=")]
    return all(_quantities_equal(side, sides[-1]) for side in sides) and _quantities_equal(gold.text, sides[-1])


def _quantities_equal(gold: str, answer: str) -> bool:
    gold_number, number = read_number(gold), read_number(answer)
    if gold_number is not None and number is not None:
        return gold_number.equals(number)
    return text_key(gold) == text_key(answer) or symbolically_equal(gold, answer)


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
    if answer.brackets == ":" and len(answer.items) == 2:
        return symbolically_equal(gold.text, _quotient(answer))
    if answer.kind == "matrix" or _is_vector(answer):
        return symbolically_equal(gold.text, answer.text)
    return (gold.is_relation or "mathbb" in gold.text) and symbolically_equal(gold.text, answer.text)


def _quotient(ratio: MathAnswer) -> str:
    return f"({ratio.items[0].text})/({ratio.items[1].text})"


def _is_vector(answer: MathAnswer) -> bool:
    """Whether a tuple was written with unit vectors, so that its text is an expression."""
    return answer.kind == "ordered" and not answer.text.startswith(("(", "[", r"\langle"))


def _group_equals_value(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`(0, 1)` against `0 < x < 1`; `\\{5\\}` against `5`."""
    if gold.kind == "set" and len(gold.items) == 1:
        return answers_equal(gold.items[0], answer)
    if gold.brackets == ":" and len(gold.items) == 2:
        return symbolically_equal(_quotient(gold), answer.text)
    if gold.kind == "matrix" or _is_vector(gold):
        return symbolically_equal(gold.text, answer.text)
    return (answer.is_relation or "mathbb" in answer.text) and symbolically_equal(gold.text, answer.text)


def _tuples_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """`(1, 2)` against itself, and against `1, 2` or `y = 2, x = 1`; intervals only against the same brackets."""
    if gold.kind == answer.kind:
        same = _all_equal(gold.items, answer.items) or (gold.brackets == ":" and _is_proportional(gold, answer))
        return gold.brackets == answer.brackets and same
    listed, other = (gold, answer) if gold.kind == "list" else (answer, gold)
    if listed.kind != "list" or other.brackets != "()":
        return False
    return _all_equal(_by_name(gold), _by_name(answer))


def _is_proportional(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Whether two ratios are one: `2:3` and `4:6`."""
    sides = [[f"({item.text})/({ratio.items[0].text})" for item in ratio.items[1:]] for ratio in (gold, answer)]
    return len(sides[0]) == len(sides[1]) and all(map(symbolically_equal, *sides))


def _by_name(answer: MathAnswer) -> Sequence[MathAnswer]:
    """The elements of a list in the order of their names where all have one of a single letter, else as they are."""
    names = [item.name or "" for item in answer.items]
    is_point = all(len(name) == 1 and name.isalpha() for name in names) and len(set(names)) == len(names)
    return sorted(answer.items, key=lambda item: item.name or "") if is_point else answer.items


def _matrices_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Same shape and cells; one row or one column is also a tuple; rows may be tuples, as in `[[1, 2], [3, 4]]`."""
    matrix, other = (gold, answer) if gold.kind == "matrix" else (answer, gold)
    if other.kind == "matrix":
        return gold.brackets == answer.brackets and _all_equal(gold.items, answer.items)
    if other.kind != "ordered" or other.brackets not in ("()", "[]"):
        return False
    num_rows, num_columns = map(int, matrix.brackets.split("x"))
    cells = other.items
    if all(row.kind == "ordered" for row in cells):
        if len(cells) != num_rows or any(len(row.items) != num_columns for row in cells):
            return False
        cells = tuple(cell for row in cells for cell in row.items)
    elif 1 not in (num_rows, num_columns):
        return False
    pair = (matrix.items, cells) if matrix is gold else (cells, matrix.items)
    return _all_equal(*pair)


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
