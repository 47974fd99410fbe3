"""GDPO: group reward-decoupled normalisation policy optimisation (arXiv 2601.05242), for several rewards.

    A_k = (R_k - mean of the group) / (std of the group + 1e-6) for each reward k by itself
    S   = sum over k of weight_k A_k
    A   = (S - mean of S) / sqrt(variance of S + 1e-8), over all responses of the batch
    loss: PPO's clipped surrogate, the mean over sequences of token means

Adding up rewards first, as GRPO does, gives responses the same advantage that earned the same total in different ways.
A reward whose values in a group have no spread gives zero there, and a group in which no reward has any gets exactly
zero. The batch's mean and variance count every response with a score, one whose tokens are masked too, as its group
does: each group's sums add up to zero, and so the mean is zero and groups without spread stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages, whiten
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import GdpoConfig
from mmrl.types import RewardResult


class GdpoAlgorithm(ClippedAlgorithm[GdpoConfig]):
    def batch_advantages(self, groups: Sequence[GroupScores]) -> list[Tensor]:
        sizes = [len(group.scores) for group in groups]
        sums = torch.cat(super().batch_advantages(groups))
        whitened = whiten(sums, torch.ones_like(sums)).split(sizes)
        return [
            torch.where(sums_of.any(), values, 0.0) for values, sums_of in zip(whitened, sums.split(sizes), strict=True)
        ]

    def group_advantages(self, group: GroupScores) -> Tensor:
        sums = torch.zeros_like(group.scores)
        for index, part in enumerate(group.group.rewards[0].parts):
            if part.weight:
                values = torch.tensor([_value(reward, index) for reward in group.group.rewards], dtype=torch.float64)
                sums += part.weight * group_normalised_advantages(values, scores=values)
        return sums


def _value(reward: RewardResult, index: int) -> float:
    value = reward.parts[index].value
    assert value is not None, f"reward '{reward.parts[index].name}' has no value; select groups first"
    return value
