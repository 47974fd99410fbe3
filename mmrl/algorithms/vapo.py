"""VAPO: value-augmented PPO for long reasoning (arXiv 2504.05118).

    A   = GAE over the critic's values with lambda = 1 - 1 / (length_alpha l), l the sampled tokens of a response
    ret = GAE with critic_lam 1, + V: what came of the response, so that the critic learns no bias of its own
    loss: PPO's clipped surrogate with clip-higher, the mean over tokens,
          + imitation_coef * the mean of -log pi over the tokens of right responses

In the first `critic.warmup_steps` steps only the critic learns, and what it learns are those returns (the paper's value
pretraining). A response is right when it did not fail (`outcome.failed`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrl.algorithms.gae import length_adaptive_lambda
from mmrl.algorithms.imitation import ImitationTerm
from mmrl.algorithms.objective import LossTerm
from mmrl.algorithms.outcome import failed
from mmrl.algorithms.token_level import CriticAlgorithm
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import VapoConfig
from mmrl.types import ScoredGroup


class VapoAlgorithm(CriticAlgorithm[VapoConfig]):
    def complete(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> GroupBatch:
        """Advantages, returns, and which responses are right."""
        succeeded = torch.tensor(
            [float(not failed(reward, self.shaping_parts)) for group in groups for reward in group.rewards]
        )
        return super().complete(groups, batch).with_(succeeded=succeeded.to(batch.response_mask))

    def extra_terms(self, mini_batch: GroupBatch) -> Sequence[LossTerm]:
        coef = self.config.imitation_coef
        return [ImitationTerm(mini_batch, coef=coef)] if coef > 0 else []

    def policy_lambda(self, lengths: Tensor) -> Tensor:
        if self.config.length_alpha is None:
            return torch.full_like(lengths, self.config.policy_lam)
        return length_adaptive_lambda(lengths, alpha=self.config.length_alpha)

    def critic_lambda(self, lengths: Tensor) -> Tensor:
        return torch.full_like(lengths, self.config.critic_lam)
