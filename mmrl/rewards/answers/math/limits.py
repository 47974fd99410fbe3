"""What keeps a response from making its own grading endless: sizes that are looked at before anything is worked out,
and a clock for the rest."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mmrl.rewards.answers.numbers import has_huge_power

MAX_CHARACTERS = 4000
MAX_DEPTH = 60
MAX_TERMS = 400
MAX_FACTORIAL = 1000
MAX_BINOMIAL = 10_000
_TICK_S = 0.05

_OPERATION = re.compile(r"[+*/-]|\\(?:cdot|times|div)(?![a-zA-Z])")
_FACTORIAL = re.compile(r"(\d+)\s*[)}]?\s*!")
_FACTORIAL_OF_FACTORIAL = re.compile(r"![\s(){}]*!|[\^!]\s*[^!]*[)}]\s*!")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*\{\s*(\d+)")
_POWER_OF_BRACKETS = re.compile(r"[)}]\s*\^\s*[{(]*\s*-?\s*\d{6,}")


class OutOfTimeError(BaseException):
    """The clock ran out. No Exception, so that SymPy's own handlers let it pass."""


def why_too_large(text: str) -> str | None:
    """Why an answer is not worked out, or None where it may be."""
    if len(text) > MAX_CHARACTERS:
        return f"it has {len(text)} characters, more than {MAX_CHARACTERS}"
    if (depth := _depth(text)) > MAX_DEPTH:
        return f"its brackets are {depth} deep, more than {MAX_DEPTH}"
    if (terms := len(_OPERATION.findall(text)) + 1) > MAX_TERMS:
        return f"it has {terms} terms, more than {MAX_TERMS}"
    if any(len(number) > 9 or int(number) > MAX_FACTORIAL for number in _FACTORIAL.findall(text)):
        return f"it has the factorial of a number above {MAX_FACTORIAL}"
    if _FACTORIAL_OF_FACTORIAL.search(text):
        return "it has the factorial of a factorial or of a power"
    if any(len(number) > 9 or int(number) > MAX_BINOMIAL for number in _BINOMIAL.findall(text)):
        return f"it has a binomial coefficient of a number above {MAX_BINOMIAL}"
    if has_huge_power(text) or _POWER_OF_BRACKETS.search(text):
        return "it has a power with thousands of digits"
    return None


@contextmanager
def clock(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the block once it has used the seconds of processor time: on a machine that is busy
    with other things an answer must not become wrong. Signals reach the main thread only: in another thread nothing is
    stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _TICK_S)  # again and again: a handler may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
