"""Finding the answer in a response: the box, the words after 'answer is', the last formula or number."""

from __future__ import annotations

import re

from mmrl.rewards.text import answer_after_phrase, normalise_width, trailing_boxes, unwrap

_MAX_BARE = 4000
"""Characters of a whole response that may be an answer: telling prose from it takes the square of its length."""

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?\s*%?(?![\w])")
_PROSE = re.compile(r"(?:[A-Za-z]{2,}[,.]?\s+){2,}[A-Za-z]{2,}")
_END_OF_ANSWER = re.compile(r"[.;!?](?=\s|$)|,?\s+(?:because|since|as|which|so|where|when|by)\b|,\s+(?=[a-z]{2,}\s)")


def find_answer(response: str, *, num_elements: int = 1) -> tuple[str, str] | None:
    """The answer in a response and where it was found, or None.

    num_elements: elements of the reference; where it has several, and the response ends in as many boxes with little
        between them, they are one answer together.
    """
    boxes = trailing_boxes(response)
    if boxes:
        is_joint = len(boxes) > 1 and len(boxes) == num_elements
        return (", ".join(boxes), "the last boxes") if is_joint else (boxes[-1], "the last box")
    response = normalise_width(response)
    if phrase := answer_after_phrase(response):
        return _leading_answer(phrase), "after 'answer'"
    if "\\boxed" in response:
        return None  # a box was begun, or only spoken of: whatever number stands there is not given as the answer
    if formulas := _FORMULA.findall(response):
        return next(filter(None, formulas[-1])).strip(), "the last formula"
    bare = unwrap(response.strip())
    if bare and len(bare) <= _MAX_BARE and "\n" not in bare and not _PROSE.search(bare):
        return bare, "the whole response"
    numbers = _NUMBER.findall(response)
    return (numbers[-1].strip(), "the last number") if numbers else None


def _leading_answer(phrase: str) -> str:
    """The answer at the start of what follows 'answer is', without the sentence that goes on behind it."""
    if formula := _FORMULA.search(phrase):
        return next(filter(None, formula.groups())).strip()
    end = _END_OF_ANSWER.search(phrase)
    return unwrap(phrase[: end.start()] if end else phrase) or phrase
