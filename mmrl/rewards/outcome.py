"""One try of one reward on one response, whatever comes of it."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

from mmrl.rewards.base import Reward, RewardFailure, RewardItem

MAX_TEXT = 2000
"""Longest text, in characters, that is kept of what was extracted, explained or raised."""


@dataclass(frozen=True)
class Outcome:
    """What came of it: a value, or an error. Both are None where a user's function returned None.

    ran_out_of_memory: the process may be full now and should be replaced.
    ms: milliseconds that the reward took.
    """

    value: float | None = None
    extracted: str | None = None
    explanation: str | None = None
    extras: Mapping[str, float | str] = field(default_factory=dict)
    error: str | None = None
    ms: float = 0.0
    ran_out_of_memory: bool = False


def attempt(reward: Reward, item: RewardItem) -> Outcome:
    """Score one response; every exception, `sys.exit` included, becomes the outcome's error.

    Raises:
        KeyboardInterrupt: nothing else.
    """
    began = time.perf_counter()
    try:
        score = reward.score(item)
    except RewardFailure as failure:
        return Outcome(error=_cut(str(failure)), ms=_ms_since(began))
    except MemoryError:
        return Outcome(error="it ran out of memory", ms=_ms_since(began), ran_out_of_memory=True)
    except SystemExit as error:
        return Outcome(error=f"it called exit({error.code!r})", ms=_ms_since(began))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Outcome(error=_describe(error), ms=_ms_since(began))
    return Outcome(
        value=score.value,
        extracted=_cut(score.extracted),
        explanation=_cut(score.explanation),
        extras={key: value if isinstance(value, float) else _cut(value) or "" for key, value in score.extras.items()},
        ms=_ms_since(began),
    )


def _describe(error: BaseException) -> str:
    """The exception with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be shown)"
    return _cut(f"it raised {type(error).__name__}: {message}{place}") or ""


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_TEXT else text[:MAX_TEXT] + f"… ({len(text)} characters)"


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
