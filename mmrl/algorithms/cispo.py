"""CISPO: clipped importance sampling policy optimisation (MiniMax-M1, arXiv 2506.13585, section 3.1).

    A = GRPO's
    loss: -stopgrad(min(r, cap)) A log pi, the mean over tokens

The paper's lower bound of the ratio is so low that it does not act, as there.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages
from mmrl.algorithms.base import Algorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens, capped_ratio_loss
from mmrl.config.algorithm import CispoConfig


class CispoAlgorithm(Algorithm[CispoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_normalised_advantages(group.returns, scores=group.scores)

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        return capped_ratio_loss(tokens, cap=self.config.cap)
