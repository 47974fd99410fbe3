"""What one optimiser step of a critic minimises.

For each sampled token, with v its value now, v_old its value before the update and ret its return:

    L = 1/2 max((v - ret)^2, (clip(v, v_old - value_clip, v_old + value_clip) - ret)^2)

and the loss of the update is the mean over its tokens (PPO's value clipping, as in OpenAI's baselines).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import UpdateCounts, token_weights
from mmrl.algorithms.metrics import TokenMetrics
from mmrl.batch import GroupBatch, LossOutput


class ValueObjective:
    """The objective of one update; `batch` is the whole of it, with values and returns."""

    def __init__(self, batch: GroupBatch, *, value_clip: float | None) -> None:
        self._counts = UpdateCounts.of(batch, response_limit=1)
        self._value_clip = value_clip

    def __call__(self, micro_batch: GroupBatch, values: Tensor) -> LossOutput:
        """The micro-batch's part of the loss; values: (B, T) with gradients."""
        assert micro_batch.returns is not None, "a critic learns returns, which are computed before the update"
        mask = micro_batch.response_mask.to(values.device)
        returns = micro_batch.returns.to(values.device)
        losses = (values - returns).square() / 2
        metrics = TokenMetrics(mask, num_tokens_of_update=self._counts.num_tokens)
        if self._value_clip is not None:
            assert micro_batch.values is not None, "value clipping needs the values of the update's start"
            before = micro_batch.values.to(values.device)
            moved = values - before
            clipped = before + moved.clamp(-self._value_clip, self._value_clip)
            clipped_losses = (clipped - returns).square() / 2
            # Where nothing is clipped the two losses still differ by rounding.
            is_cut_off = (moved.abs() > self._value_clip) & (clipped_losses > losses)
            metrics.mean("critic/clip_fraction", is_cut_off.to(mask.dtype))
            losses = torch.maximum(losses, clipped_losses)
        loss = (losses * token_weights(mask, "token_mean", self._counts)).sum()
        metrics.part("critic/loss", loss)
        metrics.mean("critic/value_mean", values)
        metrics.mean("critic/return_mean", returns)
        return metrics.output(loss)


def value_metrics(batch: GroupBatch) -> dict[str, float]:
    """How well the values before the update foretold the returns of the whole batch: `critic/explained_variance`,
    1 - Var(return - value) / Var(return), is 1 when perfect and 0 when no better than a constant. It is missing where
    the returns have no spread to explain."""
    assert batch.values is not None, "a critic's values are taken before the update"
    assert batch.returns is not None, "returns are computed with the advantages"
    counted = batch.response_mask > 0
    returns = batch.returns[counted].double()
    if returns.numel() < 2 or float(returns.var()) <= 1e-12:
        return {}
    unexplained = (returns - batch.values[counted].double()).var() / returns.var()
    return {"critic/explained_variance": 1 - float(unexplained)}
