"""GSPO: group sequence policy optimisation (Qwen, arXiv 2507.18071).

    A = GRPO's
    s = exp(mean over a response's tokens of log r), the ratio of each of its tokens
    loss: PPO's clipped surrogate on s, the mean over sequences

The gradient goes through each token's own log-probability (the paper's GSPO-token), which for one
advantage a response is the gradient of s itself. `actor/ratio_max` and `actor/approx_kl` are still of the token ratios.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens, sequence_clip_loss
from mmrl.config.algorithm import GspoConfig


class GspoAlgorithm(ClippedAlgorithm[GspoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_normalised_advantages(group.returns, scores=group.scores)

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        config = self.config
        return sequence_clip_loss(
            tokens, clip_low=config.clip_low, clip_high=config.clip_high, dual_clip=config.dual_clip
        )
