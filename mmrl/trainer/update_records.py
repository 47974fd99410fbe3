"""What an update leaves to the records of its responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.runs.records import TokenRecord
from mmrl.types import Rollout, ScoredGroup


@dataclass(frozen=True)
class UpdateBatch:
    """What an update is made from: the kept groups and, with its rows in their order, their tensor form."""

    groups: tuple[ScoredGroup, ...]
    batch: GroupBatch

    @property
    def rollouts(self) -> list[Rollout]:
        """The responses, one a row."""
        return [rollout for group in self.groups for rollout in group.group.rollouts]


def with_advantages(scored: Sequence[ScoredGroup], update: UpdateBatch) -> list[ScoredGroup]:
    """Every group with the mean advantage of each of its responses, None for those left out of the update."""
    assert update.batch.advantages is not None
    lengths = update.batch.response_mask.sum(-1)
    means = (update.batch.advantages.sum(-1) / lengths.clamp(min=1)).tolist()
    advantage_of = {
        _key(rollout): mean if length else None
        for rollout, mean, length in zip(update.rollouts, means, lengths.tolist(), strict=True)
    }
    return [
        replace(
            group,
            advantages=tuple(advantage_of.get(_key(rollout)) for rollout in group.group.rollouts),
        )
        for group in scored
    ]


def token_records(
    scored: Sequence[ScoredGroup], update: UpdateBatch, actor_logprobs: Mapping[int, tuple[float, ...]]
) -> list[list[TokenRecord]]:
    """What was computed of the tokens of every response, under the weights that sampled it; None for what was not.

    actor_logprobs: row of the update -> the actor's logprobs.
    """
    rows = {_key(rollout): row for row, rollout in enumerate(update.rollouts)}

    def record(rollout: Rollout) -> TokenRecord:
        row = rows.get(_key(rollout))
        if row is None:
            return TokenRecord()
        length = len(rollout.token_ids)
        return TokenRecord(
            actor_logprobs=actor_logprobs.get(row),
            reference_logprobs=_numbers(update.batch.reference_logprobs, row, length),
            entropy=_numbers(update.batch.old_entropy, row, length),
        )

    return [[record(rollout) for rollout in group.group.rollouts] for group in scored]


def _numbers(tensor: Tensor | None, row: int, length: int) -> tuple[float, ...] | None:
    return None if tensor is None else tuple(tensor[row, :length].tolist())


def _key(rollout: Rollout) -> tuple[str, int, int]:
    """One response of a step: a sample that comes twice has responses of the same index, by other seeds."""
    return (rollout.sample_id, rollout.index, rollout.seed)
