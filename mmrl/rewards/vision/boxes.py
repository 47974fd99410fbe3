"""Boxes and points: reading them out of text, and matching them one to one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mmrl.config.reward_vision import BoxForm
from mmrl.rewards.text import last_box, normalise_width

MAX_MATCHED = 500
"""Boxes or points of one response that are matched; more than that count as wrong."""

ROUNDING = 1e-9
"""What the change of frames may lose."""

_N = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
_FOUR = re.compile(rf"[\[(]{_N},{_N},{_N},{_N}[\])]")
_TWO_BY_TWO = re.compile(rf"[\[(]{_N},{_N}[\])]\s*,?\s*[\[(]{_N},{_N}[\])]")
_IS = r"[\"']?\s*[=:]\s*[\"']?"
_TWO = re.compile(rf"[\[(]{_N},{_N}[\])]|\bx\d*{_IS}{_N}[\"']?\s*,?\s*[\"']?\by\d*{_IS}{_N}[\"']?")
_NAMED_FOUR = re.compile(
    r"[\"']?\s*,?\s*".join(
        rf"[\"']?\b(?:{names}){_IS}{_N}"
        for names in (r"x_?1|x_?min|left", r"y_?1|y_?min|top", r"x_?2|x_?max|right", r"y_?2|y_?max|bottom")
    )
)
_ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_EMPTY = re.compile(r"\[\s*\]|(?i:none|no (?:box|object)s?)|没有")

One = TypeVar("One")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Point:
    x: float
    y: float

    def scaled(self, scale: tuple[float, float]) -> Point:
        return Point(self.x * scale[0], self.y * scale[1])


@dataclass(frozen=True)
class Box:
    """Corners with x1 < x2 and y1 < y2; else the box is empty and overlaps nothing."""

    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def area(self) -> float:
        return max(0.0, self.x2 - self.x1) * max(0.0, self.y2 - self.y1)

    def scaled(self, scale: tuple[float, float]) -> Box:
        return Box(self.x1 * scale[0], self.y1 * scale[1], self.x2 * scale[0], self.y2 * scale[1])

    def overlap(self, other: Box) -> float:
        """Intersection over union, 0 to 1."""
        shared = Box(
            max(self.x1, other.x1), max(self.y1, other.y1), min(self.x2, other.x2), min(self.y2, other.y2)
        ).area
        union = self.area + other.area - shared
        return shared / union if shared > 0 and union > 0 else 0.0

    def holds(self, point: Point) -> bool:
        """Whether the point is inside or on the edge (rounding forgiven)."""
        inside_x = self.x1 - ROUNDING <= point.x <= self.x2 + ROUNDING
        return inside_x and self.y1 - ROUNDING <= point.y <= self.y2 + ROUNDING


def answer_region(response: str) -> str:
    """Where an answer's coordinates are read: the last box, else the last `<answer>`, else the whole response."""
    text = normalise_width(response)
    boxed = last_box(text)
    if boxed is not None:
        return boxed
    tagged = _ANSWER_TAG.findall(text)
    return str(tagged[-1]) if tagged else text


def read_boxes(text: str, form: BoxForm, *, pairs: bool = True) -> list[Box]:
    """Every group of four numbers, `[x1, y1, x2, y2]`, also inside JSON; if there is none and `pairs` is set, four by
    name, `x1=1, y1=2, x2=3, y2=4`, or every two points in a row, `(x1, y1), (x2, y2)`."""
    groups = _FOUR.findall(text) or (_NAMED_FOUR.findall(text) or _TWO_BY_TWO.findall(text) if pairs else [])
    return [_box(*map(float, group), form=form) for group in groups]


def read_points(text: str) -> list[Point]:
    """Every pair of numbers that is not part of a group of four: `[x, y]`, `(x, y)`, `x="1" y="2"`,
    `{"x": 1, "y": 2}`."""
    groups = [[float(number) for number in match if number] for match in _TWO.findall(_FOUR.sub(" ", text))]
    return [Point(*group) for group in groups]


def says_none(text: str) -> bool:
    """Whether a text says that there is nothing: `[]`, `none`."""
    return _EMPTY.fullmatch(text.strip().strip(".")) is not None


def matched_score(one: Sequence[One], other: Sequence[Other], score: Callable[[One, Other], float]) -> float:
    """The largest sum of scores over pairs, each element in one pair at most."""
    from scipy.optimize import linear_sum_assignment

    if not one or not other:
        return 0.0
    table = np.array([[score(a, b) for b in other] for a in one])
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum())


def _box(a: float, b: float, c: float, d: float, *, form: BoxForm) -> Box:
    match form:
        case "corners":
            return Box(a, b, c, d)
        case "corner_size":
            return Box(a, b, a + c, b + d)
        case "centre_size":
            return Box(a - c / 2, b - d / 2, a + c / 2, b + d / 2)
