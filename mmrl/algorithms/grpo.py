"""GRPO: group relative policy optimisation (DeepSeekMath, arXiv 2402.03300).

    A = (R - mean of the group) / (std of the group + 1e-6), the same for every token of a response
    loss: PPO's clipped surrogate, the mean over sequences of token means

Departures: scores without spread give exactly zero; with the KL in the reward, which the paper does not do, the
penalty is part of R, but a group whose scores alone have no spread still gets zero, since the division would blow the
penalty's small differences up to full size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages, has_spread
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import GrpoConfig


class GrpoAlgorithm(ClippedAlgorithm[GrpoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        if not has_spread(group.scores):
            return torch.zeros_like(group.scores)
        return group_normalised_advantages(group.returns)
