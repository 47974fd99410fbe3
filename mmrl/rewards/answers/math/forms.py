"""Notations that carry structure of their own: matrices, cases, unit vectors, degrees with minutes, other bases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mmrl.rewards.answers.latex import split_top_level

_ENVIRONMENT = re.compile(
    r"(?P<opening>\\\{|[(\[])?\s*\\begin\{(?P<name>[pbB]?(?:small)?matrix|array|cases|aligned|gathered)\*?\}"
    r"(?:\s*\{[lcr|\s]*\})?(?P<content>.*)\\end\{(?P=name)\*?\}\s*(?:\\\}|[)\]])?"
    r"(?P<transposed>\s*\^\s*\{?\s*(?:T|\\top|\\text\{\s*T\s*\})\s*\}?)?",
    re.DOTALL,
)
_ROW_END = re.compile(r"\\\\(?:\s*\[[^\[\]]*(?:pt|em|ex|cm|mm)\])?|\\cr(?![a-zA-Z])")
_CELL_END = re.compile(r"&")
_CONDITION_WORD = re.compile(r"^(?:\\text\{\s*)?(?:if|for|when|where|若|当)(?![a-zA-Z])\s*\}?\s*", re.IGNORECASE)
_LETTER = r"(?:\\text\{\s*(?P<{0}a>[ijk])\s*\}|(?P<{0}b>[ijk])|\\(?P<{0}c>[ij])math)"
_ACCENT = r"\\(?:vec|hat|overrightarrow|widehat)(?![a-zA-Z])\s*"
_UNIT_VECTOR = re.compile(
    rf"{_ACCENT}(?:\{{\s*{_LETTER.replace('{0}', 'x')}\s*\}}|{_LETTER.replace('{0}', 'y')}(?![a-zA-Z]))"
    r"|\\text\{\s*(?P<za>[ijk])\s*\}"
)
_TERM = re.compile(r"(?P<sign>[+-]?)\s*(?P<factor>[^@]*?)\s*(?:\\cdot\s*)?@(?P<unit>[ijk])\s*")
_MINUTES = re.compile(
    r"(?P<degrees>\d+)\s*\^\{\\circ\}\s*(?P<minutes>\d{1,2}(?:\.\d+)?)\s*(?:'|\^\{\\prime\})(?!')"
    r"(?:\s*(?P<seconds>\d{1,2}(?:\.\d+)?)\s*(?:''|\"|\^\{\\prime\s*\\prime\}))?"
)
_BASED = re.compile(
    r"\(?\s*(?:\\text\{\s*)?(?P<digits>[0-9A-Fa-f]+)\s*\}?\s*\)?\s*_\s*(?:\{\s*(?P<braced>\d{1,2})\s*\}|(?P<bare>\d))"
)

_RESIDUE = re.compile(r"(?P<residue>-?\d{1,30})\s*\\pmod\{(?P<modulus>\d{1,30})\}")
_NUMBER_SET = r"(?:\\mathbb\s*\{?\s*[NZQ]\s*\}?|\\text\{\s*[NZQ]\s*\}|[NZ](?![a-zA-Z]))(?:\s*[\^_]\s*\{?[+*\d]\}?)?"
_DOMAIN = re.compile(
    rf"(?:[,;]|(?<=\S))\s*(?:\\text\{{\s*(?:where|for|with|其中)?\s*\}}|where(?![a-zA-Z])|for(?![a-zA-Z])|其中)?\s*\(?\s*"
    rf"(?:[a-zA-Z]\s*\\in\s*{_NUMBER_SET}"
    r"|[a-zA-Z]\s*(?:\\text\{\s*)?(?:is\s+an[y]?\s+integer|为整数|是整数|为任意整数)\s*\}?"
    r"|(?:\\text\{\s*)?(?:for\s+)?any\s+integer\s*\}?\s*[a-zA-Z])\s*\)?$"
)


@dataclass(frozen=True)
class Environment:
    """rows: of cells; all are as long as the first in a matrix."""

    kind: Literal["matrix", "cases"]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class BasedInteger:
    """An integer written in another base than ten: its digits, upper case, and the base."""

    digits: str
    base: int


def read_environment(tidied: str) -> Environment | None:
    """A whole answer that is one matrix, or one set of cases (a system or a piecewise function); None for others, and
    for determinants, which are numbers."""
    match = _ENVIRONMENT.fullmatch(tidied)
    if match is None or r"\begin" in match["content"]:
        return None
    lines = [line.strip().rstrip(",;").strip() for line in split_top_level(match["content"].strip(), _ROW_END)]
    rows = tuple(
        tuple(cell.strip().rstrip(",;") for cell in split_top_level(line, _CELL_END)) for line in lines if line
    )
    if not rows:
        return None
    if match["name"] in ("cases", "aligned", "gathered") or (match["name"] == "array" and match["opening"] != "["):
        is_matrix = match["name"] == "array" and match["opening"] == "("
        if not is_matrix:
            return Environment("cases", tuple(map(_without_condition_word, rows)))
    if len({len(row) for row in rows}) != 1:
        return None
    return Environment("matrix", tuple(zip(*rows, strict=True)) if match["transposed"] else rows)


def read_unit_vectors(tidied: str) -> tuple[tuple[str, ...], str] | None:
    """The components of `2\\mathbf{i} - 3\\mathbf{j}` and its text with plain letters; None for anything else."""
    marked, count = _UNIT_VECTOR.subn(lambda match: "@" + next(filter(None, match.groups())), tidied)
    terms = list(_TERM.finditer(marked))
    if not count or not terms or "".join(term.group() for term in terms) != marked:
        return None
    components = {term["unit"]: (term["sign"] + (term["factor"] or "1")).removeprefix("+") for term in terms}
    if len(components) != len(terms):
        return None
    axes = "ijk" if "k" in components else "ij"
    return tuple(components.get(axis, "0") for axis in axes), marked.replace("@", " ")


def without_domain(tidied: str) -> str:
    """`2k+1` of `2k+1, k \\in \\mathbb{Z}`: which whole numbers a letter stands for is said by some and not by
    others."""
    bare = _DOMAIN.sub("", tidied).strip()
    return bare or tidied


def with_decimal_degrees(tidied: str) -> str:
    """`45^{\\circ} 30'` as `45.5^{\\circ}`."""

    def decimal(match: re.Match[str]) -> str:
        parts = (match["degrees"], match["minutes"], match["seconds"] or "0")
        degrees = sum(Fraction(part) / 60**power for power, part in enumerate(parts))
        return f"{float(degrees):.10g}^{{\\circ}}"

    return _MINUTES.sub(decimal, tidied)


def read_based(tidied: str) -> BasedInteger | None:
    """`1011_2`, `(2A)_{16}`; None where the digits do not exist in that base."""
    match = _BASED.fullmatch(tidied)
    if match is None:
        return None
    base, digits = int(match["braced"] or match["bare"]), match["digits"].upper()
    is_number = re.search(r"\d", digits) is not None
    return BasedInteger(digits, base) if is_number and 2 <= base <= 36 and _fits(digits, base) else None


def read_residue(tidied: str) -> tuple[int, int] | None:
    """Residue and modulus of `7 \\pmod{5}`: (2, 5)."""
    match = _RESIDUE.fullmatch(tidied)
    if match is None or int(match["modulus"]) == 0:
        return None
    return int(match["residue"]) % int(match["modulus"]), int(match["modulus"])


def _fits(digits: str, base: int) -> bool:
    return all(int(digit, 36) < base for digit in digits)


def _without_condition_word(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_CONDITION_WORD.sub("", cell).strip() if index else cell for index, cell in enumerate(row))
