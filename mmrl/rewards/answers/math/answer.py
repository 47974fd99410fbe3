"""The structure of a mathematical answer: what its brackets, commas and equals signs mean.

`3`, `x = 3`, `(1, 2)`, `[0, 1)`, `\\{1, 2\\}`, `1, 2`, `x < -1 or x > 1`, `(-\\infty, 0) \\cup (1, 2)`. Grading
compares structure with structure, so that order and brackets count where they mean something and only there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from mmrl.rewards.answers.latex import bracketed, split_top_level, strip_text_commands, tidy
from mmrl.rewards.answers.math.forms import (
    Environment,
    read_environment,
    read_unit_vectors,
    with_decimal_degrees,
    without_domain,
)
from mmrl.rewards.answers.math.geometry import is_geometry
from mmrl.rewards.answers.math.words import canonical_words, is_words
from mmrl.rewards.answers.scale import with_one_unit, with_scale_words
from mmrl.rewards.answers.units import split_unit

Kind = Literal["value", "ordered", "set", "list", "union", "matrix"]

_SEPARATOR = re.compile(r"\s*(?:[,;]\s*(?:(?:and|or)(?![a-zA-Z]))?|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])|或|和|且)\s*")
_SEMICOLON = re.compile(r"\s*;\s*")
_UNION = re.compile(r"\s*\\cup(?![a-zA-Z])\s*")
_ISO_INTERVAL = re.compile(r"([\]\[(])([^\[\]()]*[,;][^\[\]()]*)([\]\[)])")
_EQUALS = re.compile(r"(?<![<>=!\\])=(?!=)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MEMBERSHIP = re.compile(r"[a-zA-Z]\w*\s*\\in(?![a-zA-Z])\s*(?=[(\[\\])")
_SET_BUILDER = re.compile(
    r"[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\||:|\\mid(?![a-zA-Z])|\\vert)\s*(?P<condition>.+)"
)
_SUBSCRIPT_OR_ARGUMENT = re.compile(
    r"_\{[^{}]*\}|_\w|(?<=[a-zA-Z])\s*\^\s*\{?\s*-\s*1\s*\}?(?=\s*\()|(?<=[a-zA-Z}'])\s*\([^()]*\)"
)
_OPTION_LABEL = re.compile(r"^(?:\\text\{\s*\(?(?P<wrapped>[A-J])[).]\s*\}|\((?P<bare>[A-J])\))\s*(?=[^\s.])")
_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])")
_LABEL_IN_WORDS = re.compile(
    r"^(?:\\text\{\s*[A-Za-z\u4e00-\u9fff ]+:\s*\}|(?:[A-Za-z]{2,}|[\u4e00-\u9fff]+)\s*:)\s*(?=\S)"
)
_TRANSPOSED = re.compile(r"(?P<tuple>[(\[].*[)\]])\s*\^\s*\{?\s*(?:T|\\top|\\text\{\s*T\s*\})\s*\}?")
_COLON = re.compile(r"\s*(?::|\\colon(?![a-zA-Z]))\s*")
_OPERATOR = re.compile(
    r"\\(?:i*int|oint|sum|prod|lim|det|max|min|gcd|lcm)(?![a-zA-Z])|\\frac\s*\{\s*(?:d|\\partial)[^{}]*\}\s*\{\s*(?:d|\\partial)"
)
_ROUND = {r"\langle": "(", r"\rangle": ")"}


@dataclass(frozen=True)
class MathAnswer:
    """An answer taken apart.

    text: the whole in tidied form, without a name in front.
    name: what it is said to equal: `x` of `x = 3`.
    items: the elements of everything but a value.
    label: the letter of the option that it is, where that stands in front: `C` of `(C) 12`.
    brackets: opening and closing bracket of an ordered answer: `()`, `[)`; `cases` of one case and its condition; `:`
        of a ratio; rows and columns of a matrix, whose items follow row by row: `2x3`.
    """

    kind: Kind
    text: str
    name: str | None = None
    items: tuple[MathAnswer, ...] = ()
    brackets: str = ""
    label: str | None = None

    @property
    def is_relation(self) -> bool:
        return self.kind == "value" and _is_split(self.text, _RELATION)

    @property
    def is_equation(self) -> bool:
        return self.kind == "value" and _is_split(self.text, _EQUALS)


def read_answer(text: str) -> MathAnswer:
    """The structure of an answer in any spelling."""
    tidied = tidy(text)
    label = _OPTION_LABEL.match(tidied)
    if label is not None:
        tidied = tidy(tidied[label.end() :])
    tidied = _with_usual_brackets(tidied)
    answer = read_tidied(with_one_unit(with_scale_words(with_decimal_degrees(tidied))))
    return answer if label is None else replace(answer, label=label["wrapped"] or label["bare"])


def _with_usual_brackets(text: str) -> str:
    """ISO's open intervals, `]2, 3]` and `[0, 1[`, as `(2, 3]` and `[0, 1)`."""
    if not any(part.startswith("]") or part.endswith("[") for part in _UNION.split(text)):
        return text

    def usual(match: re.Match[str]) -> str:
        opening, content, closing = match.groups()
        return ("(" if opening == "]" else opening) + content + (")" if closing == "[" else closing)

    return _ISO_INTERVAL.sub(usual, text)


@lru_cache(maxsize=4096)
def read_tidied(text: str) -> MathAnswer:
    """The structure of a tidied answer."""
    text = canonical_words(without_domain(_LABEL_IN_WORDS.sub("", text)))
    if is_geometry(text) and _EQUALS.search(text) is None:
        return MathAnswer("value", text)
    if _THOUSANDS.fullmatch(text):
        return MathAnswer("value", text)
    if (environment := read_environment(text)) is not None:
        return _read_environment(text, environment)
    if (listed := _read_list(text)) is not None:
        return listed
    name, bare = _split_name(_MEMBERSHIP.sub("", text))
    if name is not None or bare != text:
        inner = read_tidied(bare)
        return MathAnswer(inner.kind, inner.text, name or inner.name, inner.items, inner.brackets)
    if (match := _TRANSPOSED.fullmatch(text)) and (row := read_tidied(match["tuple"])).kind == "ordered":
        return MathAnswer("matrix", text, items=row.items, brackets=f"{len(row.items)}x1")
    if len(terms := split_top_level(text, _COLON)) > 1 and all(terms) and not any(map(is_words, terms)):
        return MathAnswer("ordered", text, items=tuple(map(read_tidied, terms)), brackets=":")
    unions = split_top_level(text, _UNION)
    if len(unions) > 1:
        return MathAnswer("union", text, items=tuple(map(read_tidied, unions)))
    if (group := bracketed(text)) is not None:
        return _read_group(text, *group)
    if (vector := read_unit_vectors(text)) is not None:
        components, plain = vector
        return MathAnswer("ordered", plain, items=tuple(map(read_tidied, components)), brackets="()")
    if text.count(r"\pm") == 1 and not is_words(text):
        both = tuple(read_tidied(tidy(text.replace(r"\pm", sign))) for sign in ("+", "-"))
        return MathAnswer("list", text, items=both)
    return MathAnswer("value", text)


def _has_letters(text: str) -> bool:
    return re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", strip_text_commands(text))) is not None


def _is_split(text: str, separator: re.Pattern[str]) -> bool:
    """Whether the separator stands outside all brackets: `\\sum_{k=1}^{n} k` is no equation."""
    return separator.search(text) is not None and len(split_top_level(text, separator)) > 1


def _read_list(text: str) -> MathAnswer | None:
    pieces = [piece for piece in split_top_level(text, _SEPARATOR) if piece]
    if len(pieces) < 2:
        return None
    return MathAnswer("list", text, items=tuple(map(read_tidied, pieces)))


def _read_environment(text: str, environment: Environment) -> MathAnswer:
    """A matrix by its cells; a system by its equations; a piecewise function by its cases, each with its condition."""
    if environment.kind == "matrix":
        shape = f"{len(environment.rows)}x{len(environment.rows[0])}"
        cells = (read_tidied(cell) for row in environment.rows for cell in row)
        return MathAnswer("matrix", text, items=tuple(cells), brackets=shape)
    return MathAnswer("list", text, items=tuple(map(_read_case, environment.rows)))


def _read_case(row: tuple[str, ...]) -> MathAnswer:
    pieces = [piece for cell in row for piece in split_top_level(cell, _SEPARATOR) if piece]
    if len(pieces) == 1:
        return read_tidied(pieces[0])
    value, *conditions = map(read_tidied, pieces)
    return MathAnswer("ordered", " ".join(pieces), items=(value, *conditions), brackets="cases")


def _read_group(text: str, opening: str, content: str, closing: str) -> MathAnswer:
    separator = _SEMICOLON if ";" in content else _SEPARATOR
    pieces = [piece for piece in split_top_level(content, separator) if piece]
    items = tuple(map(read_tidied, pieces))
    if opening == r"\{":
        if not pieces:
            return MathAnswer("value", r"\emptyset")
        if builder := _SET_BUILDER.fullmatch(content):
            return read_tidied(builder["condition"].strip())
        return MathAnswer("set", text, items=items)
    brackets = _ROUND.get(opening, opening) + _ROUND.get(closing, closing)
    if len(items) < 2:
        return items[0] if items and brackets == "()" else MathAnswer("value", text)
    return MathAnswer("ordered", text, items=items, brackets=brackets)


def _split_name(text: str) -> tuple[str | None, str]:
    """`x` and `3` of `x = 3`; of a chain (`m+n = 256+37 = 293`) the first and the last. An equation to be solved
    (`3x + 4y = 5`, `x^2 = 4`) has no name and stays whole; a sum of plain numbers in front is dropped."""
    pieces = split_top_level(text, _EQUALS)
    if len(pieces) < 2 or not all(pieces) or _is_split(text, _RELATION):
        return None, text
    first, last = pieces[0], pieces[-1]
    if is_geometry(last):
        return None, text
    if _OPERATOR.match(first):
        return None, last
    if not _has_letters(first):
        if not re.search(r"\d", first):
            return first.replace(" ", ""), last  # a name such as \lambda
        if len(pieces) == 2 and re.fullmatch(r"[a-zA-Z]", last):
            return last, first
        return (None, text) if len(pieces) == 2 and _has_letters(last) and not split_unit(last)[1] else (None, last)
    without_indices = _SUBSCRIPT_OR_ARGUMENT.sub("", strip_text_commands(first))
    if re.search(r"\d", without_indices) or first.startswith("-"):
        return (None, text) if len(pieces) == 2 else (None, last)
    return first.replace(" ", ""), last
