"""The structure of a mathematical answer: what its brackets, commas and equals signs mean.

`3`, `x = 3`, `(1, 2)`, `[0, 1)`, `\\{1, 2\\}`, `1, 2`, `x < -1 or x > 1`, `(-\\infty, 0) \\cup (1, 2)`. Grading
compares structure with structure, so that order and brackets count where they mean something and only there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mmrl.rewards.latex import bracketed, split_top_level, strip_text_commands, tidy

Kind = Literal["value", "ordered", "set", "list", "union"]

_SEPARATOR = re.compile(r"\s*(?:[,;]\s*(?:(?:and|or)(?![a-zA-Z]))?|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])|或|和)\s*")
_SEMICOLON = re.compile(r"\s*;\s*")
_UNION = re.compile(r"\s*\\cup(?![a-zA-Z])\s*")
_EQUALS = re.compile(r"(?<![<>=!\\])=(?!=)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MEMBERSHIP = re.compile(r"[a-zA-Z]\w*\s*\\in(?![a-zA-Z])\s*(?=[(\[\\])")
_SET_BUILDER = re.compile(
    r"[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\||:|\\mid(?![a-zA-Z])|\\vert)\s*(?P<condition>.+)"
)
_SUBSCRIPT_OR_ARGUMENT = re.compile(r"_\{[^{}]*\}|_\w|(?<=[a-zA-Z}'])\([^()]*\)")
_OPTION_LABEL = re.compile(r"^(?:\\text\{\s*\(?[A-J][).]\s*\}|\([A-J]\))\s*(?=[^\s.])")
_ROUND = {r"\langle": "(", r"\rangle": ")"}


@dataclass(frozen=True)
class MathAnswer:
    """An answer taken apart.

    text: the whole in tidied form, without a name in front.
    name: what it is said to equal: `x` of `x = 3`.
    items: the elements of everything but a value.
    brackets: opening and closing bracket of an ordered answer: `()`, `[)`.
    """

    kind: Kind
    text: str
    name: str | None = None
    items: tuple[MathAnswer, ...] = ()
    brackets: str = ""

    @property
    def is_relation(self) -> bool:
        return self.kind == "value" and re.search(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])", self.text) is not None

    @property
    def is_equation(self) -> bool:
        return self.kind == "value" and _EQUALS.search(self.text) is not None


def read_answer(text: str) -> MathAnswer:
    """The structure of an answer in any spelling; the label of an option in front, as in `(C) 12`, is dropped."""
    return read_tidied(tidy(_OPTION_LABEL.sub("", tidy(text))))


@lru_cache(maxsize=4096)
def read_tidied(text: str) -> MathAnswer:
    """The structure of a tidied answer."""
    if _THOUSANDS.fullmatch(text):
        return MathAnswer("value", text)
    if (listed := _read_list(text)) is not None:
        return listed
    name, bare = _split_name(_MEMBERSHIP.sub("", text))
    if name is not None or bare != text:
        inner = read_tidied(bare)
        return MathAnswer(inner.kind, inner.text, name or inner.name, inner.items, inner.brackets)
    unions = split_top_level(text, _UNION)
    if len(unions) > 1:
        return MathAnswer("union", text, items=tuple(map(read_tidied, unions)))
    if (group := bracketed(text)) is not None:
        return _read_group(text, *group)
    if text.count(r"\pm") == 1 and not is_words(text):
        both = tuple(read_tidied(tidy(text.replace(r"\pm", sign))) for sign in ("+", "-"))
        return MathAnswer("list", text, items=both)
    return MathAnswer("value", text)


def is_words(tidied: str) -> bool:
    """Whether an answer is words rather than mathematics: `east`, `\\text{no}`, `没有`, but not `xy` or `sin x`."""
    if re.search(r"[\u4e00-\u9fff]", tidied):
        return re.search(r"\d", tidied) is None
    bare = strip_text_commands(tidied).strip()
    if not re.fullmatch(r"[A-Za-z][A-Za-z'\-.! ]*", bare):
        return False
    if tidied.startswith(r"\text") and len(bare) > 1:
        return True
    words = re.findall(r"[A-Za-z']+", bare)
    functions = {"sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "sqrt", "max", "min", "arcsin"}
    return any(len(word) >= 4 for word in words) or (
        any(len(word) >= 2 for word in words) and not functions & set(words)
    )


def _read_list(text: str) -> MathAnswer | None:
    pieces = [piece for piece in split_top_level(text, _SEPARATOR) if piece]
    if len(pieces) < 2:
        return None
    return MathAnswer("list", text, items=tuple(map(read_tidied, pieces)))


def _read_group(text: str, opening: str, content: str, closing: str) -> MathAnswer:
    separator = _SEMICOLON if ";" in content else _SEPARATOR
    pieces = [piece for piece in split_top_level(content, separator) if piece]
    items = tuple(map(read_tidied, pieces))
    if opening == r"\{":
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
    if len(pieces) < 2 or not all(pieces) or re.search(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])", text):
        return None, text
    first, last = pieces[0], pieces[-1]
    if not re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", strip_text_commands(first))):
        return (None, last) if re.search(r"\d", first) else (None, text)
    without_indices = _SUBSCRIPT_OR_ARGUMENT.sub("", strip_text_commands(first))
    if re.search(r"\d", without_indices) or first.startswith("-"):
        return (None, text) if len(pieces) == 2 else (None, last)
    return first.replace(" ", ""), last
