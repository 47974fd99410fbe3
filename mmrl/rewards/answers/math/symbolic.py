"""Single expressions to SymPy and their comparison by math-verify."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Derivative, I, Integral, Limit, Product, Sum, Symbol

from mmrl.rewards.answers.math.limits import why_too_large

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


def symbolically_equal(gold: str, answer: str) -> bool:
    """Whether two tidied texts are one expression to math-verify; False where either does not parse."""
    gold_expression, expression = to_sympy(gold), to_sympy(answer)
    if gold_expression is None or expression is None:
        return False
    return bool(verify([gold_expression], [expression], allow_set_relation_comp=True, timeout_seconds=None))


@lru_cache(maxsize=4096)
def to_sympy(text: str) -> Any | None:
    """The expression of a tidied text, None where it does not parse or is too large to work out.

    The timeout of math-verify stays off: it uses signals.
    """
    if not text.strip() or why_too_large(text):
        return None
    in_radians = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    parsed = parse(f"${in_radians}$", _SYNTAX, fallback_mode="no_fallback", parsing_timeout=None)
    try:
        return _with_uniform_symbols(_worked_out(parsed[0])) if parsed else None
    except MemoryError:
        raise
    except Exception:  # SymPy refuses some of what it has read, such as x < i
        return None


def _worked_out(expression: Any) -> Any:
    """Sums, products, limits, integrals and derivatives as what they come to."""
    has_operator = isinstance(expression, Basic) and expression.has(Sum, Product, Limit, Integral, Derivative)
    return expression.doit() if has_operator else expression


def _with_uniform_symbols(expression: Any) -> Any:
    """Every variable real and `i` the imaginary unit: the parser makes symbols of one name unequal, depending on
    whether it takes the text around them for complex."""
    symbols = getattr(expression, "free_symbols", ())
    wanted = {symbol: I if symbol.name == "i" else Symbol(symbol.name, real=True) for symbol in symbols}
    changed = {symbol: new for symbol, new in wanted.items() if symbol != new}
    return expression.xreplace(changed) if changed else expression
