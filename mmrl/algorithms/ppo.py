"""PPO: proximal policy optimisation (arXiv 1707.06347) with a critic, over the tokens of a response.

    r_t = -kl.coef k1_t where the KL is taken from the reward, and the score R besides at the last sampled token
    A   = GAE(gamma, lam) over the critic's values (arXiv 1506.02438), whitened over the batch's tokens
    ret = A before whitening + V, what the critic learns
    loss: the clipped surrogate with the dual clip of arXiv 1912.09729, the mean over tokens

A response that was cut at the limit ends there as any other does: no value is added for what it did not say.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.algorithms.token_level import CriticAlgorithm
from mmrl.config.algorithm import PpoConfig


class PpoAlgorithm(CriticAlgorithm[PpoConfig]):
    def policy_lambda(self, lengths: Tensor) -> Tensor:
        return torch.full_like(lengths, self.config.lam)

    def critic_lambda(self, lengths: Tensor) -> Tensor:
        return self.policy_lambda(lengths)
