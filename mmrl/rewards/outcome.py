"""Trying a reward on responses, whatever comes of it."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score

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


def attempt(reward: Reward, items: Sequence[RewardItem]) -> list[Outcome]:
    """Score responses, one by one or as the reward's batch; every exception, `sys.exit` included, becomes an error of
    the response, or of all in the batch.

    Raises:
        KeyboardInterrupt: nothing else.
    """
    if reward.batch is None:
        return [outcome for item in items for outcome in _try(lambda batch: [reward.score(batch[0])], [item])]
    batches = [items[start : start + reward.batch] for start in range(0, len(items), reward.batch)]
    return [outcome for batch in batches for outcome in _try(reward.score_batch, batch)]


def _try(
    call: Callable[[Sequence[RewardItem]], Sequence[Score | RewardFailure]], items: Sequence[RewardItem]
) -> list[Outcome]:
    num_items = len(items)
    began = time.perf_counter()
    try:
        scores = call(items)
    except RewardFailure as failure:
        scores = [failure] * num_items
    except MemoryError:
        failed = Outcome(error="it ran out of memory", ms=_ms_since(began) / num_items, ran_out_of_memory=True)
        return [failed] * num_items
    except SystemExit as error:
        scores = [RewardFailure(f"it called exit({error.code!r})")] * num_items
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        scores = [RewardFailure(_describe(error))] * num_items
    ms = _ms_since(began) / num_items
    return [outcome_from(score, ms=ms) for score in scores]


def outcome_from(score: Score | RewardFailure, *, ms: float) -> Outcome:
    """A score, or why there is none, as an outcome; long texts are cut."""
    if isinstance(score, RewardFailure):
        return Outcome(error=_cut(str(score)), ms=ms)
    return Outcome(
        value=score.value,
        extracted=_cut(score.extracted),
        explanation=_cut(score.explanation),
        extras={key: value if isinstance(value, float) else _cut(value) or "" for key, value in score.extras.items()},
        ms=ms,
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
