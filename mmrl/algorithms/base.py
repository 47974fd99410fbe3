"""`Algorithm`: what the trainer asks of any algorithm, and the parts in which algorithms differ.

The trainer calls, in this order and for each step of the loop:
    select(groups)                     the groups and responses to learn from
    advantages(groups, batch)          one advantage for each sampled token, over the whole batch
    objective(mini_batch, ...)         for each optimiser step, what it minimises
It does not know which algorithm it runs. An algorithm is a subclass that gives `group_advantages` and, where it does
not clip the ratio as PPO does, `policy_loss`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import UpdateCounts
from mmrl.algorithms.kl import kl_estimate
from mmrl.algorithms.objective import PolicyObjective
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens, ppo_clip_loss
from mmrl.algorithms.selection import Selection, scores_of, select_groups
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import ClippedPolicyConfig, PolicyGradientConfig
from mmrl.types import ScoredGroup

ConfigT = TypeVar("ConfigT", bound=PolicyGradientConfig)
ClippedConfigT = TypeVar("ClippedConfigT", bound=ClippedPolicyConfig)


@dataclass(frozen=True, eq=False)
class GroupScores:
    """What the advantages of one group are made from, each (rollouts,) float64.

    scores: the total reward. returns: scores less the KL penalty where that is taken from the reward, else scores.
    lengths: sampled tokens.
    """

    scores: Tensor
    returns: Tensor
    lengths: Tensor


class Algorithm(ABC, Generic[ConfigT]):
    """An algorithm that samples a group of responses a prompt and learns by the policy gradient."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @property
    def needs_reference(self) -> bool:
        """Whether `GroupBatch.reference_logprobs` must be there."""
        return self.config.kl.coef > 0

    @property
    def needs_entropy(self) -> bool:
        """Whether the actor must give the entropy of each token, with gradients."""
        return self.config.entropy_coef > 0

    def needs_old_logprobs(self, mini_batches: int, epochs: int) -> bool:
        """Whether the actor's logprobs must be taken before the update: only if more than one optimiser step follows,
        since for a single one the current logprobs are the old ones."""
        return mini_batches * epochs > 1

    def select(self, groups: Sequence[ScoredGroup]) -> Selection:
        """The groups and responses that the update learns from, and counts of the rest."""
        return select_groups(
            groups,
            drop_without_spread=self.config.drop_groups_without_spread,
            mask_truncated=self.config.mask_truncated,
        )

    def advantages(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> Tensor:
        """(B, T) float32, zero where response_mask is 0. The batch's rows are the groups' responses in order."""
        sizes = [len(group.group.rollouts) for group in groups]
        assert sum(sizes) == batch.num_rows, f"{sum(sizes)} responses in the groups, {batch.num_rows} rows in the batch"
        scores = [scores_of(group) for group in groups]
        penalties = self._kl_penalties(batch).split(sizes)
        lengths = batch.response_mask.sum(-1).double().cpu().split(sizes)
        parts = [
            GroupScores(scores=score, returns=score - penalty, lengths=length)
            for score, penalty, length in zip(scores, penalties, lengths, strict=True)
        ]
        if not parts:
            return torch.zeros_like(batch.response_mask)
        advantages = torch.cat(self.batch_advantages(parts))
        tokens = advantages.to(batch.response_mask.device)[:, None] * batch.response_mask
        return self.token_advantages(tokens, batch.response_mask).float()

    def objective(self, mini_batch: GroupBatch, *, response_limit: int, first_update: bool) -> PolicyObjective:
        """What the optimiser step over `mini_batch` minimises; its counts are fixed here, for any micro-batches.

        first_update: no optimiser step has been made since the responses were sampled.
        """
        counts = UpdateCounts.of(mini_batch, response_limit=response_limit)
        return PolicyObjective(self.config, self.policy_loss, counts=counts, first_update=first_update)

    def batch_advantages(self, groups: Sequence[GroupScores]) -> list[Tensor]:
        """One advantage for each response of each group, float64. Override where groups depend on each other."""
        return [self.group_advantages(group) for group in groups]

    def token_advantages(self, advantages: Tensor, mask: Tensor) -> Tensor:
        """The advantages of the whole batch, (B, T) float64, zero where mask is 0. Override where they are normalised
        over the batch."""
        return advantages

    @abstractmethod
    def group_advantages(self, group: GroupScores) -> Tensor:
        """One advantage for each response of the group, (rollouts,) float64."""

    @abstractmethod
    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        """The loss of each token, without KL and entropy terms."""

    def _kl_penalties(self, batch: GroupBatch) -> Tensor:
        """coef * sum over a response's tokens of k1, (B,) float64: what the reference takes from its score.

        k1 is taken under the policy that sampled: the logprobs of the update's start, or where no pass for them is
        needed the sampler's own.
        """
        kl = self.config.kl
        if kl.coef == 0 or kl.where == "loss":
            return torch.zeros(batch.num_rows, dtype=torch.float64)
        sampled = batch.sampler_logprobs if batch.old_logprobs is None else batch.old_logprobs
        assert sampled is not None, "a KL penalty needs the logprobs of the policy that sampled"
        assert batch.reference_logprobs is not None, "a KL penalty needs reference logprobs"
        k1 = kl_estimate(sampled.double().cpu(), batch.reference_logprobs.double().cpu(), "k1")
        return kl.coef * (k1 * batch.response_mask.double().cpu()).sum(-1)


class ClippedAlgorithm(Algorithm[ClippedConfigT]):
    """An algorithm that clips the ratio as PPO does."""

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        config = self.config
        return ppo_clip_loss(tokens, clip_low=config.clip_low, clip_high=config.clip_high, dual_clip=config.dual_clip)
