"""SAPO: soft adaptive policy optimisation (Qwen, arXiv 2511.20347).

    A = GRPO's
    loss: -A (4 / tau) sigmoid(tau (r - 1)), the mean over sequences of token means

At r = 1 its gradient is that of -A r, and it fades smoothly as r moves away to either side.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages
from mmrl.algorithms.base import Algorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens, soft_gate_loss
from mmrl.config.algorithm import SapoConfig


class SapoAlgorithm(Algorithm[SapoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_normalised_advantages(group.returns, scores=group.scores)

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        return soft_gate_loss(
            tokens,
            temperature_positive=self.config.temperature_positive,
            temperature_negative=self.config.temperature_negative,
        )
