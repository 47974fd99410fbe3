"""Reading an answer out of a response: character widths, boxes, answer lines and the wrappers around an answer."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ"
_SUPERSCRIPT_TO_PLAIN = str.maketrans(_SUPERSCRIPTS, "0123456789+-n")
_SUPERSCRIPT_RUN = re.compile(f"[{_SUPERSCRIPTS}]+")
_PUNCTUATION = str.maketrans({"。": ".", "｡": ".", "、": ",", "､": ",", "【": "[", "】": "]", "−": "-", "\u00a0": " "})
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])")
_BOX_SEPARATOR = re.compile(r"(?:[\s,;.$*]|\\[()\[\],;]|\\text\{\s*(?:and|or)\s*\}|and|or|和|或|以及)*")
_ANSWER_PHRASE = re.compile(
    r"(?:\b(?:final|correct|right)\s+)?(?:\banswers?\b|\bchoice\b|答案)[*_`\s]*"
    r"(?:\bis\b|\bare\b|应该是|应为|是|为|[:：=])+[*_`]*(?:\s*(?:\bis\b|\bto\s+be\b|[:：=]))*",
    re.IGNORECASE,
)
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathtt|mbox|boldsymbol|bm|emph"
    r"|operatorname|boxed|fbox)\s*\{"
)
_MAX_LAYERS = 20
_PAIRS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("__", "__"), ("`", "`"))


@dataclass(frozen=True)
class Box:
    """A `\\boxed{...}` or `\\fbox{...}`: its content and where the whole command starts and ends in the text."""

    content: str
    start: int
    end: int


def normalise_width(text: str) -> str:
    """Full-width and other compatibility characters as plain ones (NFKC); superscripts become `^{...}`, not digits."""
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run.group().translate(_SUPERSCRIPT_TO_PLAIN) + "}", text)
    return unicodedata.normalize("NFKC", text).translate(_PUNCTUATION).replace("\u2044", "/")


def find_boxes(text: str) -> list[Box]:
    """All complete outermost boxes in order; one that never closes, or that has no braces, is none."""
    boxes: list[Box] = []
    closing_of = _brace_pairs(text)
    position = 0
    while match := _BOX.search(text, position):
        opening = match.end()
        while opening < len(text) and text[opening].isspace():
            opening += 1
        closing = closing_of.get(opening)
        if closing is None:
            position = match.end()
            continue
        boxes.append(Box(text[opening + 1 : closing].strip(), match.start(), closing + 1))
        position = closing + 1
    return boxes


def last_box(text: str) -> str | None:
    """The content of the last box that has any, or None."""
    filled = [box.content for box in find_boxes(text) if box.content]
    return filled[-1] if filled else None


def trailing_boxes(text: str) -> list[str]:
    """The contents of the last boxes that only commas, 'and', 'or' and the like stand between."""
    boxes = [box for box in find_boxes(text) if box.content]
    run = boxes[-1:]
    for box in reversed(boxes[:-1]):
        if not _BOX_SEPARATOR.fullmatch(text[box.end : run[0].start]):
            break
        run.insert(0, box)
    return [box.content for box in run]


def answer_after_phrase(text: str) -> str | None:
    """What follows the last 'answer is', 'Answer:', 'Final Answer:' or '答案是': the rest of its line, or the next
    line with text if that is empty."""
    for match in reversed(list(_ANSWER_PHRASE.finditer(text))):
        for line in text[match.end() :].splitlines():
            if stripped := unwrap(line.strip()):
                return stripped
    return None


def unwrap(text: str) -> str:
    """The text without wrappers around the whole of it (`$...$`, `**...**`, `\\text{...}`, braces), without a closing
    full stop and without outer space."""
    for _ in range(_MAX_LAYERS):
        bare = _unwrap_once(text.strip())
        if bare == text:
            return bare
        text = bare
    return text


def closing_brace(text: str, opening: int) -> int | None:
    """The position of the brace that closes the one at `opening`, or None; `\\{` and `\\}` do not count."""
    return _brace_pairs(text).get(opening)


def _brace_pairs(text: str) -> dict[int, int]:
    """The position of each closed opening brace with that of its closing one, in one pass."""
    pairs: dict[int, int] = {}
    open_braces: list[int] = []
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            open_braces.append(match.start())
        elif match.group() == "}" and open_braces:
            pairs[open_braces.pop()] = match.start()
    return pairs


def _unwrap_once(text: str) -> str:
    for opening, closing in _PAIRS:
        inner = text[len(opening) : -len(closing)]
        is_wrapped = text.startswith(opening) and text.endswith(closing) and bool(inner)
        if is_wrapped and opening not in inner and closing not in inner:
            return inner
    wrapper = _WRAPPER.match(text)
    if wrapper and closing_brace(text, wrapper.end() - 1) == len(text) - 1:
        return text[wrapper.end() : -1]
    if text.startswith("{") and closing_brace(text, 0) == len(text) - 1:
        return text[1:-1]
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1]
    for mark in ("**", "__"):
        if text.count(mark) == 1 and (text.startswith(mark) or text.endswith(mark)):
            return text.replace(mark, "")
    return text
