"""Dr. GRPO: GRPO without its bias towards long wrong answers and very easy or hard prompts (arXiv 2503.20783).

    A = R - mean of the group, the same for every token of a response
    loss: PPO's clipped surrogate, the sum over tokens divided by sequences * response limit

With the KL in the reward the penalty is part of R; nothing is divided, so it acts on groups without spread too.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_centred_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import DrGrpoConfig


class DrGrpoAlgorithm(ClippedAlgorithm[DrGrpoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_centred_advantages(group.returns)
