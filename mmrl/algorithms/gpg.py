"""GPG: group policy gradient (arXiv 2504.02546).

    A = (R - mean of the group) * groups / groups with spread, both counted over the whole batch
    loss: -A log pi, the mean over tokens

The scale makes up for groups without spread, which add nothing above the line and yet count below it. Spread is that of
the scores, as everywhere: a KL term in the reward makes none.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from mmrl.algorithms.advantages import group_centred_advantages, has_spread
from mmrl.algorithms.base import Algorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens, policy_gradient_loss
from mmrl.config.algorithm import GpgConfig


class GpgAlgorithm(Algorithm[GpgConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_centred_advantages(group.returns)

    def batch_advantages(self, groups: Sequence[GroupScores]) -> list[Tensor]:
        num_with_spread = sum(has_spread(group.scores) for group in groups)
        scale = len(groups) / max(num_with_spread, 1)
        return [advantages * scale for advantages in super().batch_advantages(groups)]

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        return policy_gradient_loss(tokens)
