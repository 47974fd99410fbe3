"""Advantages and returns of single tokens: what comes after a token counts for it.

B responses, T tokens. All tensors (B, T) float64 on one device. A token that the policy did not sample (a tool's
answer, padding) has mask 0 and is stepped over: the sampled token after it follows the one before it directly.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rewards_at_last_token(scores: Tensor, mask: Tensor) -> Tensor:
    """(B, T): each response's score (B,) on its last sampled token, zero elsewhere; nowhere if none was sampled."""
    later = mask.flip(-1).cumsum(-1).flip(-1)
    is_last = (mask > 0) & (later == 1)
    return torch.where(is_last, scores[:, None], 0.0)


def generalised_advantages(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: Tensor) -> Tensor:
    """GAE (arXiv 1506.02438, equation 16), zero where mask is 0:

        delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lam A_{t+1}

    with t over a response's sampled tokens, and V = A = 0 after the last. lam: (B,), or a single number for all.
    """
    advantages = torch.zeros_like(values)
    next_value = next_advantage = values.new_zeros(len(values))
    for t in reversed(range(values.shape[1])):
        sampled = mask[:, t] > 0
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = delta + gamma * lam * next_advantage
        advantages[:, t] = torch.where(sampled, advantage, 0.0)
        next_value = torch.where(sampled, values[:, t], next_value)
        next_advantage = torch.where(sampled, advantage, next_advantage)
    return advantages


def discounted_returns(rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """G_t = r_t + gamma G_{t+1} over sampled tokens, zero where mask is 0."""
    no_values = torch.zeros_like(rewards)
    return generalised_advantages(rewards, no_values, mask, gamma=gamma, lam=torch.ones((), dtype=rewards.dtype))


def length_adaptive_lambda(lengths: Tensor, *, alpha: float) -> Tensor:
    """VAPO (arXiv 2504.05118, equation 10): 1 - 1 / (alpha l), within [0, 1]; l sampled tokens of each response (B,).

    A long response is judged by what comes of it and a short one by the critic's next value.
    """
    return (1 - 1 / (alpha * lengths.clamp(min=1))).clamp(0, 1)
