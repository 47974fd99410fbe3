"""Parts of the number line, however they are said: intervals, unions, inequalities that hold together or in turn."""

from __future__ import annotations

import re
from typing import Any

from sympy import Intersection, Set, Union

from mmrl.rewards.answers.math.answer import MathAnswer
from mmrl.rewards.answers.math.symbolic import to_sympy

_OR = re.compile(r"(?<![a-zA-Z\\])or(?![a-zA-Z])|或")
_AND = re.compile(r"(?<![a-zA-Z\\])and(?![a-zA-Z])|且")


def is_region(answer: MathAnswer) -> bool:
    """Whether an answer is an interval, a union, an inequality, or several inequalities."""
    if answer.kind == "list":
        return all(item.is_relation for item in answer.items)
    is_interval = answer.kind == "ordered" and answer.brackets in ("()", "[]", "[)", "(]") and len(answer.items) == 2
    return answer.kind == "union" or is_interval or answer.is_relation


def regions_equal(gold: MathAnswer, answer: MathAnswer) -> bool:
    """Whether both say the same part of the line. Only where one of them is several inequalities: single ones are
    compared as expressions. A comma between two may mean 'and' or 'or'."""
    if "list" not in (gold.kind, answer.kind):
        return False
    return any(one == other for one in _readings(gold) for other in _readings(answer))


def _readings(answer: MathAnswer) -> list[Set]:
    if answer.kind != "list":
        sets = [_as_set(answer.text)]
        return [one for one in sets if one is not None]
    parts = [_as_set(item.text) for item in answer.items]
    sets = [part for part in parts if part is not None]
    if len(sets) < len(parts):
        return []
    readings = []
    if not _OR.search(answer.text):
        readings.append(Intersection(*sets))
    if not _AND.search(answer.text):
        readings.append(Union(*sets))
    return readings


def _as_set(text: str) -> Set | None:
    expression: Any = to_sympy(text)
    if isinstance(expression, Set):
        return expression
    try:
        found = expression.as_set()
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return found if isinstance(found, Set) else None
