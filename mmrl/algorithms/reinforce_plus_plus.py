"""REINFORCE++ (arXiv 2501.03262): PPO's tokens and clip without a critic.

r_t = -kl.coef k1_t, and the score R besides at the last sampled token
G_t = r_t + gamma G_{t+1}
A   = (G - mean of G) / sqrt(variance of G + 1e-8), both over all sampled tokens of the whole batch
loss: PPO's clipped surrogate, the mean over tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from mmrl.algorithms.advantages import whiten
from mmrl.algorithms.gae import discounted_returns
from mmrl.algorithms.token_level import TokenAlgorithm, mask_of
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import ReinforcePlusPlusConfig
from mmrl.types import ScoredGroup


class ReinforcePlusPlusAlgorithm(TokenAlgorithm[ReinforcePlusPlusConfig]):
    def advantages(self, groups: Sequence[ScoredGroup], batch: GroupBatch) -> Tensor:
        mask = mask_of(batch)
        returns = discounted_returns(self.token_rewards(groups, batch), mask, gamma=self.config.gamma)
        return whiten(returns, mask).to(batch.response_mask)
