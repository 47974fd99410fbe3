"""Forward passes without gradients, in micro-batches."""

from __future__ import annotations

import torch

from mmrl.batch import GroupBatch, TokenStats
from mmrl.config.run import TrainConfig
from mmrl.engines.micro_batches import plan_micro_batches
from mmrl.models.policy import PolicyModel


@torch.no_grad()
def logprobs_without_gradient(
    policy: PolicyModel, batch: GroupBatch, train: TrainConfig, *, temperature: float, with_entropy: bool = False
) -> TokenStats:
    """Log-probabilities, and entropies where asked for, of every response token: (B, T) in the rows' own order.

    They lie on the batch's device. Micro-batches in which nothing was sampled are not forwarded.
    """
    logprobs = torch.zeros_like(batch.response_mask)
    entropy = torch.zeros_like(batch.response_mask) if with_entropy else None
    for rows in plan_micro_batches(batch, train.micro_batch_tokens, path=train.path):
        micro_batch = batch.select_rows(rows)
        if micro_batch.num_sampled_tokens == 0:
            continue
        stats = policy(micro_batch, temperature=temperature, path=train.path, with_entropy=with_entropy)
        width = micro_batch.response_ids.shape[1]
        logprobs[rows, :width] = stats.logprobs.to(logprobs)
        if entropy is not None:
            entropy[rows, :width] = stats.entropy.to(entropy)
    return TokenStats(logprobs, entropy)
