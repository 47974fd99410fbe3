"""What the algorithms share that judge each token by what comes after it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from mmrl.algorithms.advantages import whiten
from mmrl.algorithms.base import ClippedAlgorithm
from mmrl.algorithms.gae import generalised_advantages, rewards_at_last_token
from mmrl.algorithms.selection import scores_of
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import PpoConfig, TokenPolicyConfig, VapoConfig
from mmrl.types import ScoredGroup

TokenConfigT = TypeVar("TokenConfigT", bound=TokenPolicyConfig)
CriticConfigT = TypeVar("CriticConfigT", bound=PpoConfig | VapoConfig)


class TokenAlgorithm(ClippedAlgorithm[TokenConfigT]):
    """Tensors are (B, T) float64 on the CPU: advantages are made there, a few numbers a token."""

    def token_rewards(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> Tensor:
        """The KL penalty of each token, and a response's score at its last sampled token."""
        scores = torch.cat([scores_of(group) for group in groups])
        assert len(scores) == batch.num_rows, f"{len(scores)} responses in the groups, {batch.num_rows} in the batch"
        return rewards_at_last_token(scores, mask_of(batch)) - self.kl_penalties(batch)


class CriticAlgorithm(TokenAlgorithm[CriticConfigT]):
    """An algorithm whose batch has a critic's values."""

    def complete(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> GroupBatch:
        """Advantages for the policy, returns for the critic."""
        return super().complete(groups, batch).with_(returns=self.returns(groups, batch))

    def advantages(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> Tensor:
        mask = mask_of(batch)
        advantages = self._gae(groups, batch, self.policy_lambda(mask.sum(-1)))
        return (whiten(advantages, mask) if self.config.whiten else advantages).to(batch.response_mask)

    def returns(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> Tensor:
        """What the critic's values should have been, (B, T) float32: advantages before whitening + values."""
        assert batch.values is not None, "returns need the values of a critic"
        advantages = self._gae(groups, batch, self.critic_lambda(mask_of(batch).sum(-1)))
        return advantages.to(batch.response_mask) + batch.values

    @abstractmethod
    def policy_lambda(self, lengths: Tensor) -> Tensor:
        """GAE's lambda of the policy's advantages, by the sampled tokens of each response (B,)."""

    @abstractmethod
    def critic_lambda(self, lengths: Tensor) -> Tensor:
        """The same of the critic's returns."""

    def _gae(self, groups: Sequence[ScoredGroup], batch: GroupBatch, lam: Tensor) -> Tensor:
        assert batch.values is not None, "advantages need the values of a critic"
        return generalised_advantages(
            self.token_rewards(groups, batch),
            batch.values.double().cpu(),
            mask_of(batch),
            gamma=self.config.gamma,
            lam=lam,
        )


def mask_of(batch: GroupBatch) -> Tensor:
    """The response mask as advantages take it, (B, T) float64 on the CPU."""
    return batch.response_mask.double().cpu()
