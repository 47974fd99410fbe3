"""How much better a response is than its group: estimators over the scores of one group.

All take and give float64 tensors of shape (rollouts,): in float32, rounding alone gives a group whose scores are all
0.1 a standard deviation that is not zero, and dividing by it makes advantages out of nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

STD_EPSILON = 1e-6
SPREAD_TOLERANCE = 1e-6
WHITENING_EPSILON = 1e-8


def has_spread(scores: Tensor) -> bool:
    """Whether the scores of a group differ: range > 1e-6 * max(1, largest |score|)."""
    if scores.numel() < 2:
        return False
    tolerance = SPREAD_TOLERANCE * max(1.0, float(scores.abs().max()))
    return float(scores.max() - scores.min()) > tolerance


def group_normalised_advantages(returns: Tensor, *, scores: Tensor) -> Tensor:
    """GRPO (arXiv 2402.03300, section 4.1.2): (R - mean) / (std + 1e-6), std with n - 1; zeros without spread.

    scores: the returns before a KL penalty was taken from them. Where they alone have no spread the result is zero
    too, since the division would blow the small differences of the penalties up to full size.
    """
    if not (has_spread(scores) and has_spread(returns)):
        return torch.zeros_like(returns)
    return (returns - returns.mean()) / (returns.std() + STD_EPSILON)


def group_centred_advantages(returns: Tensor) -> Tensor:
    """Dr. GRPO (arXiv 2503.20783): R - mean; zeros without spread."""
    if not has_spread(returns):
        return torch.zeros_like(returns)
    return returns - returns.mean()


def leave_one_out_advantages(returns: Tensor) -> Tensor:
    """RLOO (arXiv 2402.14740): R_i - mean of the others, which is n / (n - 1) (R_i - mean); zeros without spread."""
    num_responses = returns.numel()
    return group_centred_advantages(returns) * num_responses / max(num_responses - 1, 1)


def length_weighted_advantages(returns: Tensor, lengths: Tensor) -> Tensor:
    """OPO (arXiv 2505.23585): R - sum of l R / sum of l; zeros without spread. lengths: (rollouts,) sampled tokens.

    A response that nothing is learned from has length 0 and so no part in the variance that the baseline is to lower.
    """
    if not has_spread(returns) or not lengths.any():
        return torch.zeros_like(returns)
    return returns - (lengths * returns).sum() / lengths.sum()


def best_lead_advantages(returns: Tensor) -> Tensor:
    """pass@k (arXiv 2503.19595): best - second best for the best response, 0 for the others; zeros without spread."""
    advantages = torch.zeros_like(returns)
    if has_spread(returns):
        best, second = returns.topk(2).values
        advantages[returns.argmax()] = best - second
    return advantages


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-8) over the positions where mask is 1, zero elsewhere; variance with n - 1.

    values, mask: of one shape. With fewer than two positions nothing is whitened.
    """
    counted = values[mask > 0]
    if counted.numel() < 2:
        return values * (mask > 0)
    return torch.where(mask > 0, (values - counted.mean()) / (counted.var() + WHITENING_EPSILON).sqrt(), 0)
