"""Losses of one token, to be minimised: what the advantage, the ratio and the log-probability make of it.

Each returns a `PolicyLoss`; adding up over tokens is `aggregation.token_weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from mmrl.algorithms.ratio import sequence_log_ratio
from mmrl.config.policy_loss import (
    CispoLossConfig,
    ClipLossConfig,
    GspoLossConfig,
    PlainLossConfig,
    PolicyLossConfig,
    SapoLossConfig,
)


@dataclass(frozen=True, eq=False)
class PolicyTokens:
    """What a policy loss may use, all (B, T) and zero where mask is 0.

    logprobs, log_ratio: with gradients; the ratio's exponent already clamped. advantages, mask: constants.
    """

    logprobs: Tensor
    log_ratio: Tensor
    advantages: Tensor
    mask: Tensor


@dataclass(frozen=True, eq=False)
class PolicyLoss:
    """token_losses: (B, T). flags: metric name -> (B, T) bool; the share of flagged tokens is logged."""

    token_losses: Tensor
    flags: Mapping[str, Tensor]


def ppo_clip_loss(
    tokens: PolicyTokens, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> PolicyLoss:
    """PPO's clipped surrogate (arXiv 1707.06347, equation 7) with the dual clip of arXiv 1912.09729:

        L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high));   where A < 0, then L = min(L, -dual_clip A)

    Flags the tokens whose gradient a bound takes away.
    """
    ratio, advantages = tokens.log_ratio.exp(), tokens.advantages
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = torch.maximum(-advantages * ratio, -advantages * clipped)
    flags = {
        "clip_fraction_low": (advantages < 0) & (ratio < 1 - clip_low),
        "clip_fraction_high": (advantages > 0) & (ratio > 1 + clip_high),
    }
    if dual_clip is not None:
        losses = torch.where(advantages < 0, torch.minimum(losses, -dual_clip * advantages), losses)
        flags["dual_clip_fraction"] = (advantages < 0) & (ratio > dual_clip)
    return PolicyLoss(losses, flags)


def sequence_clip_loss(
    tokens: PolicyTokens, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> PolicyLoss:
    """GSPO (arXiv 2507.18071): PPO's clipped surrogate on s = exp(mean over a response's tokens of log r)."""
    log_ratio = sequence_log_ratio(tokens.log_ratio, tokens.logprobs, tokens.mask)
    return ppo_clip_loss(
        replace(tokens, log_ratio=log_ratio), clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )


def capped_ratio_loss(tokens: PolicyTokens, *, cap: float) -> PolicyLoss:
    """CISPO (arXiv 2506.13585): L = -stopgrad(min(r, cap)) A log pi. No token loses its gradient.

    Flags the tokens whose ratio is above the cap.
    """
    ratio = tokens.log_ratio.detach().exp()
    losses = -ratio.clamp(max=cap) * tokens.advantages * tokens.logprobs
    return PolicyLoss(losses, {"cap_fraction": ratio > cap})


def soft_gate_loss(tokens: PolicyTokens, *, temperature_positive: float, temperature_negative: float) -> PolicyLoss:
    """SAPO (arXiv 2511.20347): L = -A (4 / tau) sigmoid(tau (r - 1)), tau by the sign of A."""
    temperature = torch.where(tokens.advantages > 0, temperature_positive, temperature_negative)
    gate = torch.sigmoid(temperature * (tokens.log_ratio.exp() - 1)) * 4 / temperature
    return PolicyLoss(-tokens.advantages * gate, {})


def policy_gradient_loss(tokens: PolicyTokens) -> PolicyLoss:
    """REINFORCE: L = -A log pi, without a ratio and without a bound."""
    return PolicyLoss(-tokens.advantages * tokens.logprobs, {})


def configured_loss(config: PolicyLossConfig) -> Callable[[PolicyTokens], PolicyLoss]:
    """The loss that a config names."""
    settings = config.model_dump(exclude={"type"})
    losses: dict[type, Callable[..., PolicyLoss]] = {
        ClipLossConfig: ppo_clip_loss,
        GspoLossConfig: sequence_clip_loss,
        CispoLossConfig: capped_ratio_loss,
        SapoLossConfig: soft_gate_loss,
        PlainLossConfig: policy_gradient_loss,
    }
    return partial(losses[type(config)], **settings)
