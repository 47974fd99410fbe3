"""Which tokens learn, and how much: the correction between sampler and trainer, and the filter by entropy.

Both are constants of the update, so they are made once over the step's whole batch. Every policy loss is proportional
to its advantage as long as the sign is kept, so a weight of the loss is a weight of the advantage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.algorithms.ratio import MAX_LOG_RATIO
from mmrl.batch import GroupBatch
from mmrl.config.correction import CorrectionConfig


@dataclass(frozen=True, eq=False)
class Correction:
    """weights: (B, T) float64, zero where the mask is 0. kept: (B,) bool, False for responses to leave out."""

    weights: Tensor
    kept: Tensor
    metrics: dict[str, float]


def prepare_update(
    batch: GroupBatch, config: CorrectionConfig, *, entropy_top_share: float | None
) -> tuple[GroupBatch, dict[str, float]]:
    """The batch of a step as its update takes it: advantages times the weights of the correction, zero for tokens that
    the filter leaves out, and responses that the correction leaves out masked; with what was done as metrics.

    Tokens that the filter leaves out still count in the update's means, and so does a KL or entropy term on them.
    """
    assert batch.advantages is not None, "advantages are computed before the update"
    advantages, mask = batch.advantages, batch.response_mask
    metrics: dict[str, float] = {}
    if config.is_on:
        assert batch.old_logprobs is not None, "a correction needs the trainer's logprobs at the update's start"
        assert batch.sampler_logprobs is not None, "a correction needs the sampler's logprobs"
        correction = correct(batch.old_logprobs, batch.sampler_logprobs, mask, config)
        advantages = advantages * correction.weights.to(advantages)
        mask = mask * correction.kept[:, None]
        metrics |= correction.metrics
    if entropy_top_share is not None:
        assert batch.old_entropy is not None, "the filter needs the entropies at the update's start"
        learning = highest_entropy(batch.old_entropy, mask, entropy_top_share)
        advantages = advantages * learning
        metrics["update/learning_share"] = float(learning.sum() / mask.sum().clamp(min=1))
    return batch.with_(advantages=advantages, response_mask=mask), metrics


def correct(old_logprobs: Tensor, sampler_logprobs: Tensor, mask: Tensor, config: CorrectionConfig) -> Correction:
    """Weights from rho = exp(old - sampler), the exponent clamped to +-20, per token or as a response's product.

    TIS (truncated importance sampling): min(rho, cap). IcePop: rho where low <= rho <= high, else 0. A sequence mask
    leaves a response out whose product is above sequence_mask or below its inverse. All without gradient.

    old_logprobs, sampler_logprobs, mask: (B, T). Metrics are of the tokens kept: effective sample size (sum w)^2 /
    (n sum w^2), mean weight, and the share of tokens whose weight a bound changed.
    """
    counted = mask > 0
    log_ratio = torch.where(counted, old_logprobs.double() - sampler_logprobs.double(), 0.0)
    product = log_ratio.sum(-1, keepdim=True).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    kept = torch.ones(len(mask), dtype=torch.bool, device=mask.device)
    if config.sequence_mask is not None:
        kept = product.squeeze(-1).abs() <= math.log(config.sequence_mask)
    ratio = (product.expand_as(log_ratio) if config.level == "sequence" else log_ratio).exp()
    weights = _bounded(ratio, config)
    counted &= kept[:, None]
    metrics = {"correction/dropped_responses": float((~kept & (mask.sum(-1) > 0)).sum())}
    if config.weight is not None:
        metrics |= _weight_metrics(weights[counted], ratio[counted])
    return Correction(weights * counted, kept, metrics)


def highest_entropy(entropy: Tensor, mask: Tensor, share: float) -> Tensor:
    """(B, T) bool: the ceil(share * n) of the n sampled tokens with the highest entropy, more where several have the
    lowest of these ('Beyond the 80/20 rule', arXiv 2506.01939)."""
    counted = mask > 0
    values = entropy[counted]
    if values.numel() == 0:
        return counted
    number = math.ceil(share * values.numel())
    return counted & (entropy >= values.topk(number).values[-1])


def _bounded(ratio: Tensor, config: CorrectionConfig) -> Tensor:
    if config.weight is None:
        return torch.ones_like(ratio)
    if config.weight == "tis":
        return ratio.clamp(max=config.cap)
    return torch.where((ratio >= config.low) & (ratio <= config.high), ratio, 0.0)


def _weight_metrics(weights: Tensor, ratio: Tensor) -> dict[str, float]:
    squares = float(weights.square().sum())
    if squares == 0:
        return {"correction/effective_sample_size": 0.0}
    return {
        "correction/effective_sample_size": float(weights.sum()) ** 2 / (weights.numel() * squares),
        "correction/weight_mean": float(weights.mean()),
        "correction/bounded_share": float((weights != ratio).double().mean()),
    }
