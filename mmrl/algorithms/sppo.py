"""SPPO: self-play preference optimisation (arXiv 2405.00675, equation 4.7).

    A = eta · (P - 1/2), P the mean over the group's responses y' of how likely y beats y', itself included
    loss of a response = (sum over its tokens of log r - A)^2

r is the ratio to the policy at the start of the update, which sampled the responses: the paper's previous iterate. The
comparison is made of scores, by sign or by the sigmoid of their difference, where the paper has a model of pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.algorithms.base import Algorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens
from mmrl.config.algorithm import SppoConfig


class SppoAlgorithm(Algorithm[SppoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        differences = group.returns[:, None] - group.returns[None, :]
        if self.config.comparison == "sigmoid":
            wins = differences.sigmoid()
        else:
            wins = (torch.sign(differences) + 1) / 2
        return self.config.eta * (wins.mean(-1) - 0.5)

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        """A response's loss, spread evenly over its tokens."""
        lengths = tokens.mask.sum(-1, keepdim=True).clamp(min=1)
        moved = (tokens.log_ratio * tokens.mask).sum(-1, keepdim=True)
        targets = (tokens.advantages * tokens.mask).sum(-1, keepdim=True) / lengths
        return PolicyLoss((moved - targets).square() / lengths * tokens.mask, flags={})
