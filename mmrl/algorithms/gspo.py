"""GSPO: group sequence policy optimisation (Qwen, arXiv 2507.18071).

    A = GRPO's
    s = exp(mean over a response's tokens of log r), the ratio of each of its tokens
    loss: PPO's clipped surrogate on s, the mean over sequences

The gradient goes through each token's own log-probability (the paper's GSPO-token), which for one
advantage a response is the gradient of s itself. `actor/ratio_max` and `actor/approx_kl` are still of the token ratios.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens
from mmrl.algorithms.ratio import sequence_log_ratio
from mmrl.config.algorithm import GspoConfig


class GspoAlgorithm(ClippedAlgorithm[GspoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        return group_normalised_advantages(group.returns, scores=group.scores)

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        log_ratio = sequence_log_ratio(tokens.log_ratio, tokens.logprobs, tokens.mask)
        return super().policy_loss(replace(tokens, log_ratio=log_ratio))
