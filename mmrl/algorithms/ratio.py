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


def sequence_log_ratio(log_ratio: Tensor, logprobs: Tensor, mask: Tensor) -> Tensor:
    """The log of GSPO's sequence ratio, (B, T), the same for every token of a response.

    The value is the mean of log r over sampled tokens; the gradient of each token is that of its own logprob
    (arXiv 2507.18071, GSPO-token).
    """
    mean = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.detach() + logprobs - logprobs.detach()
