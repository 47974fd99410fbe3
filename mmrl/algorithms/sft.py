"""The objective of supervised fine-tuning: the mean negative log-likelihood of the update's target tokens."""

from __future__ import annotations

from mmrl.algorithms.aggregation import UpdateCounts, token_weights
from mmrl.algorithms.metrics import TokenMetrics
from mmrl.batch import GroupBatch, LossOutput, TokenStats


class SftObjective:
    """-sum of logprobs over target tokens / target tokens of the update. `batch` is the whole update."""

    needs_entropy = False

    def __init__(self, batch: GroupBatch) -> None:
        self._counts = UpdateCounts.of(batch, response_limit=1)

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        mask = micro_batch.response_mask.to(stats.logprobs.device)
        loss = -(stats.logprobs * token_weights(mask, "token_mean", self._counts)).sum()
        metrics = TokenMetrics(mask, num_tokens_of_update=self._counts.num_tokens)
        metrics.part("sft/loss", loss)
        return metrics.output(loss)
