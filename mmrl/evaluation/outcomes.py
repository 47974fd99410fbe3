"""What came of each prompt of an evaluation, as far as its metrics go by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mmrl.config.evaluation import CorrectConfig
from mmrl.types import RewardPart, ScoredGroup

UNNAMED_SOURCE = "unnamed"
"""Source of prompts whose row names none."""

_TOLERANCE = 1e-9


class Graded(Protocol):
    """A response as it was graded; `RewardResult` and a record of a sample both are."""

    @property
    def parts(self) -> tuple[RewardPart, ...]: ...


@dataclass(frozen=True)
class PromptOutcome:
    """The responses to one prompt. Each tuple has one entry a response.

    correct: None where the reward that decides failed, or there is none. answers: what was extracted, as it votes; None
    where nothing was. rewards: totals, None where a part failed. truncated: cut at the limit of tokens.
    """

    prompt_id: str
    source: str
    correct: tuple[bool | None, ...]
    answers: tuple[str | None, ...]
    rewards: tuple[float | None, ...]
    lengths: tuple[int, ...]
    truncated: tuple[bool, ...]

    @property
    def graded(self) -> tuple[bool, ...]:
        """Of the responses that could be graded."""
        return tuple(value for value in self.correct if value is not None)


def deciding_part(
    names: Sequence[str], correct: CorrectConfig, *, shaping: Sequence[str] = (), scores: Sequence[str] = ()
) -> str | None:
    """The reward that says whether a response is right: the one that the config names, else the first that does not
    only shape and is no learned score. Where all of them shape the first; None where there is no other than a score.

    shaping, scores: those of `names` that only shape, and the learned ones.
    """
    if correct.part is not None:
        return correct.part
    judging = [name for name in names if name not in shaping and name not in scores]
    return next(iter(judging or ([] if scores else names)), None)


def outcome_of(group: ScoredGroup, *, part: str | None, at_least: float) -> PromptOutcome:
    """part: the reward that decides. at_least: its value from which on a response is right."""
    rollouts = group.group.rollouts
    grades = [grade_of(result, part=part, at_least=at_least) for result in group.rewards]
    return PromptOutcome(
        prompt_id=group.group.sample.id,
        source=source_of(group.group.sample.meta),
        correct=tuple(right for right, _ in grades),
        answers=tuple(answer for _, answer in grades),
        rewards=tuple(result.total for result in group.rewards),
        lengths=tuple(sum(rollout.response_mask) for rollout in rollouts),
        truncated=tuple(rollout.is_truncated for rollout in rollouts),
    )


def grade_of(result: Graded, *, part: str | None, at_least: float) -> tuple[bool | None, str | None]:
    """Whether a response is right, and the answer that it votes for."""
    found = next((each for each in result.parts if each.name == part), None)
    if found is None or found.value is None:
        return None, None
    answer = None if found.extracted is None else " ".join(found.extracted.split()).casefold()
    return found.value >= at_least - _TOLERANCE, answer or None


def source_of(meta: Mapping[str, Any] | None) -> str:
    """Where a prompt came from, by its row."""
    return str((meta or {}).get("source") or UNNAMED_SOURCE)
