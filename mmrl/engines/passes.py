"""Which passes a batch takes through a model, and those without gradients.

A pass is a micro-batch. Micro-batches in which nothing was sampled are left out: they add nothing. Where the model's
weights are divided among ranks, every rank makes as many passes as the one that has most; those that it has no rows
for forward a filler, so that no rank waits for another (`models.lockstep`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.batch import GroupBatch, TokenStats
from mmrl.config.run import TrainConfig
from mmrl.engines.micro_batches import plan_micro_batches
from mmrl.models.classifier import Classifier
from mmrl.models.lockstep import Lockstep
from mmrl.models.policy import PolicyModel
from mmrl.models.reward_model import RewardModel
from mmrl.models.value_model import ValueModel


@dataclass(frozen=True, eq=False)
class Pass:
    """rows: (rows,) int64 of the batch that `micro_batch` holds; a filler has none of them."""

    rows: Tensor
    micro_batch: GroupBatch

    @property
    def is_filler(self) -> bool:
        return not len(self.rows)


def plan_passes(batch: GroupBatch, train: TrainConfig, lockstep: Lockstep | None) -> list[Pass]:
    """The passes of this rank, the costliest first."""
    parts = [
        Pass(rows, batch.select_rows(rows))
        for rows in plan_micro_batches(batch, train.micro_batch_tokens, path=train.path)
    ]
    passes = [part for part in parts if part.micro_batch.num_sampled_tokens > 0]
    if lockstep is None:
        return passes
    filler = Pass(torch.zeros(0, dtype=torch.int64), lockstep.filler)
    return passes + [filler] * (max(lockstep.gather(len(passes))) - len(passes))


@torch.no_grad()
def logprobs_without_gradient(
    policy: PolicyModel, batch: GroupBatch, train: TrainConfig, *, temperature: float, with_entropy: bool = False
) -> TokenStats:
    """Log-probabilities, and entropies where asked for, of every response token: (B, T) in the rows' own order.

    They lie on the batch's device.
    """
    logprobs = torch.zeros_like(batch.response_mask)
    entropy = torch.zeros_like(batch.response_mask) if with_entropy else None
    passes = plan_passes(batch, train, policy.lockstep)
    for one in passes:
        stats = policy(one.micro_batch, temperature=temperature, path=train.path, with_entropy=with_entropy)
        if one.is_filler:
            continue
        width = one.micro_batch.response_ids.shape[1]
        logprobs[one.rows, :width] = stats.logprobs.to(logprobs)
        if entropy is not None:
            entropy[one.rows, :width] = stats.entropy.to(entropy)
    if policy.lockstep is not None:
        policy.lockstep.end_passes(len(passes))
    return TokenStats(logprobs, entropy)


@torch.no_grad()
def values_without_gradient(model: ValueModel, batch: GroupBatch, train: TrainConfig) -> Tensor:
    """(B, T) float32 in the rows' own order, on the batch's device, zero where response_mask is 0."""
    values = torch.zeros_like(batch.response_mask)
    passes = plan_passes(batch, train, model.lockstep)
    for one in passes:
        computed = model(one.micro_batch, path=train.path)
        if not one.is_filler:
            values[one.rows, : computed.shape[1]] = computed.to(values)
    if model.lockstep is not None:
        model.lockstep.end_passes(len(passes))
    return values


@torch.no_grad()
def scores_without_gradient(model: RewardModel | Classifier, batch: GroupBatch, train: TrainConfig) -> Tensor:
    """(B,) float32 in the rows' own order, on the batch's device."""
    scores = torch.zeros(batch.num_rows, device=batch.response_mask.device)
    passes = plan_passes(batch, train, model.lockstep)
    for one in passes:
        computed = model(one.micro_batch, path=train.path)
        if not one.is_filler:
            scores[one.rows] = computed.to(scores)
    if model.lockstep is not None:
        model.lockstep.end_passes(len(passes))
    return scores
