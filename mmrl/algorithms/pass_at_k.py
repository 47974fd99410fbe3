"""pass@k training: raises the best score of a group, not the mean (arXiv 2503.19595).

    A = R - second best R for the best response of the group, 0 for the others
    loss: PPO's clipped surrogate, summed over tokens, the mean over sequences

The objective is the expected maximum over the k = group_size responses; each response's advantage is the maximum less
what it would be without that response. Only the best one changes it, and only if it is the only best.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import best_lead_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import PassAtKConfig


class PassAtKAlgorithm(ClippedAlgorithm[PassAtKConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return best_lead_advantages(group.returns)
