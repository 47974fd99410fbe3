"""REINFORCE++ with a group baseline (arXiv 2501.03262, 'REINFORCE++ w/ Baseline').

    A' = R - mean of the group
    A  = (A' - mean of A') / sqrt(variance of A' + 1e-8), both over all sampled tokens of the whole batch
    loss: PPO's clipped surrogate, the mean over tokens

Since the mean is over tokens and responses differ in length, it need not be zero: then a group without spread gets a
small advantage too, the same for all of its responses. A batch without any spread gets exactly zero.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_centred_advantages, whiten
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import ReinforcePlusPlusBaselineConfig


class ReinforcePlusPlusBaselineAlgorithm(ClippedAlgorithm[ReinforcePlusPlusBaselineConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_centred_advantages(group.returns)

    def token_advantages(self, advantages: Tensor, mask: Tensor) -> Tensor:
        return whiten(advantages, mask)
