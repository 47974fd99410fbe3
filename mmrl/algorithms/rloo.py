"""RLOO: REINFORCE with a leave-one-out baseline (arXiv 2402.14740).

    A_i = R_i - mean of the other responses' R, the same for every token of a response
    loss: -A log of the whole response's probability, that is summed over tokens, the mean over sequences

Departure: the loss is PPO's clipped surrogate. In the first optimiser step after sampling its gradient is the paper's;
in later ones, which the paper does not make, it bounds how far the policy moves.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import leave_one_out_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import RlooConfig


class RlooAlgorithm(ClippedAlgorithm[RlooConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return leave_one_out_advantages(group.returns)
