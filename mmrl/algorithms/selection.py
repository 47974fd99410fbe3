"""Which groups and responses an update learns from, and counts of what was left out and why.

A response without a score is missing, not 0: it leaves its group. A response that was cut at the limit stays in its
group when `mask_truncated` is on, so that its score counts in the group's statistics, but none of its tokens is
learned from (DAPO's overlong filtering, arXiv 2503.14476, section 3.4): it counts neither above nor below the line.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch

from mmrl.algorithms.advantages import has_spread
from mmrl.algorithms.outcome import failed, gated
from mmrl.config.algorithm_base import OutcomeGate
from mmrl.types import RewardResult, Rollout, ScoredGroup


@dataclass(frozen=True)
class SelectionStats:
    """Counts over the groups of a step, before anything is left out.

    num_scored_groups: groups with at least two scores; the shares are of these.
    num_without_spread: of these, with the scores that the outcome gate leaves.
    num_all_fail_with_spread: groups whose responses all failed and yet score differently before the outcome gate, as
        when a penalty on length ranks wrong answers; see `outcome`.
    num_dropped_groups: groups that the update does not learn from, for whatever reason.
    num_missing_rewards, num_masked_truncated, num_empty: responses without a score, left out as truncated, and
        without a sampled token.
    """

    num_groups: int
    num_scored_groups: int
    num_without_spread: int
    num_all_fail_with_spread: int
    num_dropped_groups: int
    num_missing_rewards: int
    num_masked_truncated: int
    num_empty: int

    def metrics(self) -> dict[str, float]:
        scored = max(self.num_scored_groups, 1)
        return {
            "groups/share_without_spread": self.num_without_spread / scored,
            "groups/share_all_fail_with_spread": self.num_all_fail_with_spread / scored,
            "groups/dropped": float(self.num_dropped_groups),
            "groups/kept": float(self.num_groups - self.num_dropped_groups),
            "groups/missing_rewards": float(self.num_missing_rewards),
            "groups/masked_truncated": float(self.num_masked_truncated),
            "groups/empty_responses": float(self.num_empty),
        }


class Selection(NamedTuple):
    """The groups to learn from, in their order, and what was counted on the way."""

    groups: list[ScoredGroup]
    stats: SelectionStats


def select_groups(
    groups: Sequence[ScoredGroup],
    *,
    drop_without_spread: bool,
    mask_truncated: bool,
    min_scores: int = 2,
    outcome_gate: OutcomeGate = "off",
    shaping_parts: Collection[str] = (),
) -> Selection:
    """Leave out responses without a score, groups with fewer than `min_scores` scores, groups whose greedy response
    was to be scored and could not be, groups with no token to learn from and, where asked, groups without spread and
    the tokens of truncated responses. Groups of which every response failed score as `outcome_gate` says; the groups of
    the selection hold these scores."""
    usable = [group for group in map(without_missing, groups) if len(group.rewards) >= min_scores and _has_base(group)]
    num_noisy = sum(map(partial(_fails_with_spread, shaping_parts=shaping_parts), usable))
    usable = [gated(group, outcome_gate, shaping_parts) for group in usable]
    scored = [group for group in usable if len(group.rewards) >= 2]
    spread = [has_spread(scores_of(group)) for group in scored]
    candidates = usable
    if drop_without_spread:
        candidates = [group for group in usable if has_spread(scores_of(group))]
    num_masked = 0
    if mask_truncated:
        num_masked = sum(rollout.is_truncated for group in candidates for rollout in group.group.rollouts)
        candidates = [_mask_truncated(group) for group in candidates]
    kept = [group for group in candidates if any(map(_has_token, group.group.rollouts))]
    stats = SelectionStats(
        num_groups=len(groups),
        num_scored_groups=len(scored),
        num_without_spread=len(spread) - sum(spread),
        num_all_fail_with_spread=num_noisy,
        num_dropped_groups=len(groups) - len(kept),
        num_missing_rewards=sum(not has_score(reward) for group in groups for reward in group.rewards),
        num_masked_truncated=num_masked,
        num_empty=sum(not _has_token(rollout) for group in groups for rollout in group.group.rollouts),
    )
    return Selection(kept, stats)


def has_score(reward: RewardResult) -> bool:
    """Whether the reward is there and a finite number."""
    return reward.total is not None and math.isfinite(reward.total)


def scores_of(group: ScoredGroup) -> torch.Tensor:
    """The totals, (rollouts,) float64. The group must have been through `select_groups`."""
    totals = [reward.total for reward in group.rewards]
    assert None not in totals, f"sample {group.group.sample.id} has a response without a score; select groups first"
    return torch.tensor(totals, dtype=torch.float64)


def without_missing(group: ScoredGroup) -> ScoredGroup:
    """The group without the responses that have no score; the same object if all have one."""
    if all(map(has_score, group.rewards)):
        return group
    kept = [index for index, reward in enumerate(group.rewards) if has_score(reward)]
    return replace(
        group,
        group=replace(group.group, rollouts=tuple(group.group.rollouts[index] for index in kept)),
        rewards=tuple(group.rewards[index] for index in kept),
    )


def _fails_with_spread(group: ScoredGroup, *, shaping_parts: Collection[str]) -> bool:
    return has_spread(scores_of(group)) and all(failed(reward, shaping_parts) for reward in group.rewards)


def _has_base(group: ScoredGroup) -> bool:
    return group.greedy_reward is None or has_score(group.greedy_reward)


def _mask_truncated(group: ScoredGroup) -> ScoredGroup:
    rollouts = tuple(_masked(rollout) if rollout.is_truncated else rollout for rollout in group.group.rollouts)
    return replace(group, group=replace(group.group, rollouts=rollouts))


def _masked(rollout: Rollout) -> Rollout:
    """The response with no token to learn from; sampler logprobs are zero wherever the mask is."""
    length = len(rollout.token_ids)
    return replace(rollout, response_mask=(0,) * length, logprobs=(0.0,) * length)


def _has_token(rollout: Rollout) -> bool:
    return any(rollout.response_mask)
