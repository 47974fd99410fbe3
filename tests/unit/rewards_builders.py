"""Samples, items and groups for the tests of rewards."""

from __future__ import annotations

from typing import Any

from mmrl.rewards import RewardItem
from mmrl.types import FinishReason, Message, Rollout, RolloutGroup, Sample, TextPart


def sample(answer: str | None = "7", *, id: str = "sample-1", **meta: Any) -> Sample:
    return Sample(id, (Message("user", (TextPart("Which digit is this?"),)),), answer, meta)


def item(
    response: str, answer: str | None = "7", *, num_tokens: int = 3, finish_reason: FinishReason = "stop"
) -> RewardItem:
    return RewardItem(sample(answer), response, 0, num_tokens, finish_reason)


def rollout(text: str, index: int = 0, *, num_tokens: int = 3, sample_id: str = "sample-1") -> Rollout:
    return Rollout(
        sample_id=sample_id,
        index=index,
        token_ids=tuple(range(num_tokens)),
        response_mask=(1,) * num_tokens,
        logprobs=(0.0,) * num_tokens,
        finish_reason="stop",
        text=text,
        policy_version=0,
        seed=0,
    )


def group(*texts: str, answer: str | None = "7", id: str = "sample-1") -> RolloutGroup:
    rollouts = tuple(rollout(text, index, sample_id=id) for index, text in enumerate(texts))
    return RolloutGroup(sample(answer, id=id), rollouts)
