"""The ratio r of the policy that is being trained to the policy at the start of the update."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""The exponent of the ratio is held within this bound, so that no token overflows; beyond it the gradient is zero."""


def log_ratio(logprobs: Tensor, old_logprobs: Tensor | None, mask: Tensor) -> Tensor:
    """log r = logprobs - old_logprobs, clamped to +-20, (B, T), zero where mask is 0.

    Without old logprobs the current ones take their place, detached: r is then 1 and its gradient that of logprobs,
    which is exact for the first update after sampling and needs no pass of its own.
    """
    old = logprobs.detach() if old_logprobs is None else old_logprobs
    return torch.where(mask > 0, logprobs - old, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
