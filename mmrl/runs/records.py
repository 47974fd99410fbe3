"""What readers of a run directory get. Plain frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from mmrl.types import FinishReason, ImageRef, Message, RewardPart, Sample

StateName = Literal["starting", "running", "succeeded", "failed", "cancelled", "paused"]


@dataclass(frozen=True)
class TokenRecord:
    """What the trainer knows of each token of one response; None where it was not computed. Each is (length,)."""

    actor_logprobs: tuple[float, ...] | None = None
    reference_logprobs: tuple[float, ...] | None = None
    entropy: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ResponseRecord:
    """One response. `text` and what is per token are None where only the numbers were kept.

    reward: total, None when a reward failed. advantage: None where there was none.
    length: tokens of the response. logprobs: the sampler's.
    """

    sample_idx: int
    seed: int
    policy_version: int
    reward: float | None
    parts: tuple[RewardPart, ...]
    advantage: float | None
    length: int
    finish_reason: FinishReason
    turns: int
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    response_mask: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    tokens: TokenRecord = TokenRecord()

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True)
class GroupRecord:
    """One prompt of one step and its responses, in the order in which they were sampled.

    prompt, answer, meta: None where only the numbers were kept (`kept_because` is None then).
    reward_mean, reward_std: over the rewards that are there; the deviation is the unbiased one, None under two.
    kept_rate: share of the step's groups that were kept in full.
    greedy: the response that the group was compared with, where the algorithm does that; none of `responses`.
    """

    attempt: int
    split: str
    step: int
    group_id: int
    prompt_id: str
    reward_mean: float | None
    reward_std: float | None
    kept_because: str | None
    kept_rate: float
    responses: tuple[ResponseRecord, ...]
    prompt: tuple[Message, ...] | None = None
    answer: str | None = None
    meta: Mapping[str, Any] | None = None
    greedy: ResponseRecord | None = None

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """The images of the prompt, in order of appearance."""
        return Sample(self.prompt_id, self.prompt or ()).images

    @property
    def by_reward(self) -> tuple[ResponseRecord, ...]:
        """Responses from the highest reward to the lowest, missing rewards last."""
        return tuple(sorted(self.responses, key=_reward_order))


@dataclass(frozen=True)
class StepSummary:
    """The samples of one step in figures. num_full: groups kept with text. num_missing: responses without a reward."""

    split: str
    step: int
    attempt: int
    num_groups: int
    num_responses: int
    num_full: int
    num_missing: int
    num_truncated: int
    reward_mean: float | None
    reward_std: float | None
    length_mean: float


@dataclass(frozen=True)
class Event:
    """One line of events.jsonl: what happened when; `fields` is what else the line holds."""

    time: datetime
    attempt: int
    kind: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class MetricRow:
    """All metrics of one step. A value is None where it was no finite number; attempt and time: the last writer's."""

    step: int
    time: datetime
    attempt: int
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class CheckpointRecord:
    """A whole checkpoint. num_bytes: of all its files. is_pinned: kept whatever the run's retention says."""

    step: int
    path: Path
    num_bytes: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    is_pinned: bool = False


@dataclass(frozen=True)
class RunState:
    """Where a run stands, as its last attempt wrote it down. A killed trainer leaves `running` behind.

    failure: the message of the last attempt's first failure.
    """

    state: StateName
    attempt: int
    step: int
    total_steps: int | None
    started_at: datetime | None
    updated_at: datetime | None
    failure: str | None


def _reward_order(response: ResponseRecord) -> tuple[bool, float, int]:
    return (response.reward is None, -(response.reward or 0.0), response.sample_idx)
