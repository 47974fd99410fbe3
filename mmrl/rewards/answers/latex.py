"""One spelling for each piece of LaTeX that people and models write in many, and taking it apart at the top level."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mmrl.rewards.text import closing_brace, normalise_width, unwrap

_CHARACTERS = str.maketrans(
    {
        "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ", "≤": r"\le ", "≥": r"\ge ",
        "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∞": r"\infty ", "∪": r"\cup ",
        "∩": r"\cap ", "∅": r"\emptyset ", "∈": r"\in ", "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ",
        "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "μ": r"\mu ", "ω": r"\omega ", "φ": r"\phi ",
        "√": r"\sqrt ", "°": r"^{\circ}", "–": "-", "—": "-", "‐": "-", "‑": "-", "’": "'", "′": "'",
        "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "⟨": r"\langle ", "⟩": r"\rangle ",
    }
)  # fmt: skip
_SPELLINGS = [
    (r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])\s*\.?", ""),
    (r"\\(?:displaystyle|textstyle|limits|nolimits|bf|rm|it)(?![a-zA-Z])", ""),
    (r"\\\$|\$|\\dollar(?![a-zA-Z])|[€£¥￥]", ""),
    (r"(?<=\d)\\[,!;:]\s*(?=\d{3}(?!\d))|(?<!\\)\\!", ""),
    (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])|\\enspace(?![a-zA-Z])|\\hspace\{[^{}]*\}", " "),
    (r"(?<=\d)\{,\}(?=\d)", ","),
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\(?:leqslant|leqq|leq)(?![a-zA-Z])|(?<![<>=])<=|=<", r"\\le "),
    (r"\\(?:geqslant|geqq|geq)(?![a-zA-Z])|>=", r"\\ge "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\neq(?![a-zA-Z])|!=", r"\\ne "),
    (r"==|\\equiv(?![a-zA-Z])|\\approx(?![a-zA-Z])|\\simeq(?![a-zA-Z])", "="),
    (r"\\lbrace(?![a-zA-Z])", r"\\{"),
    (r"\\rbrace(?![a-zA-Z])", r"\\}"),
    (r"\\(?:lparen|lgroup)(?![a-zA-Z])", "("),
    (r"\\(?:rparen|rgroup)(?![a-zA-Z])", ")"),
    (r"\\lbrack(?![a-zA-Z])", "["),
    (r"\\rbrack(?![a-zA-Z])", "]"),
    (r"\\(?:infin|Infinity)(?![a-zA-Z])|\b(?:infinity|inf|oo)\b", r"\\infty "),
    (r"\+\s*\\infty", r"\\infty"),
    (r"\\varnothing(?![a-zA-Z])", r"\\emptyset "),
    (r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mathsf|mbox|boldsymbol|bm)\s*\{", r"\\text{"),
    (r"\\text\{\s*,?\s*(and|or)\s*\}", r" \1 "),
    (r"\\text\{([^{}A-Za-z\u4e00-\u9fff]*)\}", r"\1"),
    (r"\^\s*\\circ(?![a-zA-Z])|\^\{\s*\\circ\s*\}|\\degree(?![a-zA-Z])", r"^{\\circ}"),
    (r"\\?%|\\text\{\s*percent(?:age)?\s*\}|\bpercent(?:age)?\b", r"\\%"),
    (r"\\operatorname\s*\{(\w+)\}", r"\1"),
    (r"(?<![\\a-zA-Z])(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp)(?![a-zA-Z])", r"\\\1 "),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
    (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
    (r"\\frac\s+\{", r"\\frac{"),
    (r"(?<!\\)\bsqrt\b|\\sqrt\s+(?=[\d({[a-zA-Z])", r"\\sqrt"),
    (r"\\sqrt\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\sqrt\s*(\d+|[a-zA-Z](?![a-zA-Z]))", r"\\sqrt{\1}"),
    (r"(?<![a-zA-Z\\])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![a-zA-Z\d])", r"\1\\times 10^{\2}"),
    (r"\(\s*(?:\\text\{\s*mod\s*\}|\\b?mod(?![a-zA-Z])|\bmod\b)\s*\{?(\w+)\}?\s*\)", r"\\pmod{\1}"),
    (r"\\(?:pmod|pod|mod)\s*\{?\s*(\w+)\s*\}?", r"\\pmod{\1}"),
    (r"(?<![\w}])(?:\{\s*\}\s*)?_\s*\{?(\d+)\}?\s*C\s*_\s*\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"(?<![\w}])(?:\{\s*\}\s*)?_\s*\{?(\d+)\}?\s*P\s*_\s*\{?(\d+)\}?", r"(\\binom{\1}{\2}\\cdot \2!)"),
    (r"\bC_\s*\{?(\d+)\}?\s*\^\s*\{?(\d+)\}?", r"\\binom{\1}{\2}"),
    (r"\bA_\s*\{?(\d+)\}?\s*\^\s*\{?(\d+)\}?", r"(\\binom{\1}{\2}\\cdot \2!)"),
    (r"\*\*", "^"),
    (r"(?<=[\d)])\s*\*\s*(?=[\da-zA-Z(\\])", r"\\cdot "),
    (r"\s+", " "),
]
_RULES = [(re.compile(pattern), replacement) for pattern, replacement in _SPELLINGS]
_OPENING = re.compile(r"\\\{|\\langle(?![a-zA-Z])|\\begin\{[^{}]*\}|[({\[]")
_CLOSING = re.compile(r"\\\}|\\rangle(?![a-zA-Z])|\\end\{[^{}]*\}|[)}\]]")
_COMMAND_ARGUMENT = re.compile(r"\\text\{")


def tidy(text: str) -> str:
    """The text in one spelling: plain width, no sizing, spacing or currency, `\\frac` for every fraction, `\\text{…}`
    for every upright or bold word, `\\%`, `^{\\circ}`, `\\le`, braces around arguments of one digit."""
    text = unwrap(normalise_width(text)).translate(_CHARACTERS)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return unwrap(text)


def text_key(tidied: str) -> str:
    """What two tidied texts share if they differ only in spaces and needless braces."""
    words = strip_text_commands(tidied)
    bare = re.sub(r"(?<=[\^_])\{(\w|\\[a-zA-Z]+)\}", r"\1", words)
    return re.sub(r"(\\[a-zA-Z]+)\s+(?=[a-zA-Z])|\s+", r"\1 ", bare).replace(" ", "")


def strip_text_commands(tidied: str) -> str:
    """`\\text{words}` as `words`."""
    while match := _COMMAND_ARGUMENT.search(tidied):
        closing = closing_brace(tidied, match.end() - 1)
        if closing is None:
            return tidied
        tidied = tidied[: match.start()] + tidied[match.end() : closing] + tidied[closing + 1 :]
    return tidied


def split_top_level(tidied: str, separator: re.Pattern[str]) -> list[str]:
    """The pieces between separators that stand outside all brackets; round and square may close each other, as in
    `[0,1)`."""
    pieces, depth, begin, position = [], 0, 0, 0
    while position < len(tidied):
        if opened := _OPENING.match(tidied, position):
            depth += 1
            position = opened.end()
        elif closed := _CLOSING.match(tidied, position):
            depth -= 1
            position = closed.end()
        elif depth == 0 and (found := separator.match(tidied, position)) and found.end() > position:
            pieces.append(tidied[begin:position].strip())
            begin = position = found.end()
        else:
            position += 1
    return [*pieces, tidied[begin:].strip()]


def bracketed(tidied: str) -> tuple[str, str, str] | None:
    """Opening bracket, content and closing bracket of a text that one pair of brackets encloses as a whole."""
    opened = re.match(r"\\\{|\\langle(?![a-zA-Z])|[(\[]", tidied)
    closed = re.search(r"(?:\\\}|\\rangle|[)\]])$", tidied)
    if opened is None or closed is None or opened.end() > closed.start():
        return None
    if any(depth == 0 for end, depth in _depths(tidied) if end < len(tidied)):
        return None
    return opened.group(), tidied[opened.end() : closed.start()].strip(), closed.group()


def _depths(tidied: str) -> Iterator[tuple[int, int]]:
    """After each bracket: where it ends and how many are open."""
    depth, position = 0, 0
    while position < len(tidied):
        opened, closed = _OPENING.match(tidied, position), _CLOSING.match(tidied, position)
        if opened or closed:
            depth += 1 if opened else -1
            position = (opened or closed).end()  # type: ignore[union-attr]
            yield position, depth
        else:
            position += 1
