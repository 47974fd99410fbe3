"""OPO: on-policy RL with the optimal reward baseline (arXiv 2505.23585).

    A = R - sum of l R / sum of l over the group, l the sampled tokens of a response
    loss: -A log of the whole response's probability, that is summed over tokens, the mean over sequences

The baseline is the one of least variance if a response's gradient grows with its length. Departure: the loss is PPO's
clipped surrogate; with one optimiser step a batch, which the paper insists on, its gradient is the paper's.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import length_weighted_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import OpoConfig


class OpoAlgorithm(ClippedAlgorithm[OpoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return length_weighted_advantages(group.returns, group.lengths)
