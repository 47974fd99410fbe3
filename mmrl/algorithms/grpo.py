"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv 2402.03300).

    A = (R - mean of the group) / (std of the group + 1e-6), the same for every token of a response
    loss: PPO's clipped surrogate, the mean over sequences of token means

Departures: scores without spread give exactly zero; the KL may be taken from R, which the paper does not do.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import GrpoConfig


class GrpoAlgorithm(ClippedAlgorithm[GrpoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_normalised_advantages(group.returns, scores=group.scores)
