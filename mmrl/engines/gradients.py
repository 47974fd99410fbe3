"""The gradient of one mini-batch, accumulated over micro-batches of one token budget.

The objective divides by counts of the whole mini-batch, so the sum over micro-batches is the gradient whatever the
budget. Micro-batches in which nothing was sampled are left out: they add nothing above or below the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.config.run import TrainConfig
from mmrl.engines.finite import NotFiniteError
from mmrl.engines.metric_sums import MetricSums
from mmrl.engines.micro_batches import num_forwarded_tokens, num_real_tokens, plan_micro_batches
from mmrl.engines.optimizer import gradient_norm


@dataclass(frozen=True)
class GradientPass:
    """What a pass over a mini-batch left beside the gradients.

    metrics: the objective's, over the whole mini-batch.
    norm: the 2-norm of the gradient of all parameters together, a scalar.
    num_micro_batches: micro-batches that were forwarded.
    padding_share: share of padding in the tokens that were forwarded.
    logprobs: (B, T) that the pass computed, without their graph, zero where response_mask is 0; all zero where the
        module computes none.
    """

    metrics: dict[str, float]
    norm: Tensor
    num_micro_batches: int
    padding_share: float
    logprobs: Tensor


@dataclass(frozen=True)
class GradientAccumulator:
    """Adds the gradient of an objective to the parameters of `module`.

    forward: what the objective takes besides the micro-batch, with gradients: forward(micro_batch, objective).
    finish_backward: called when every micro-batch has gone backward; brings what was held back to the weights.
    An objective is called as objective(micro_batch, what forward gave) and returns a `LossOutput`.
    """

    module: nn.Module
    train: TrainConfig
    forward: Callable[[GroupBatch, Any], Any]
    finish_backward: Callable[[], None] = lambda: None

    def accumulate(self, batch: GroupBatch, objective: Any) -> GradientPass:
        """One pass over `batch`. Raises NotFiniteError if the loss of a micro-batch or the gradient is not finite."""
        path = self.train.path
        sums, num_micro_batches, num_forwarded, num_real = MetricSums(), 0, 0, 0
        logprobs = torch.zeros_like(batch.response_mask)
        for rows, micro_batch, stats, output in self._passes(batch, objective):
            sums.add(output)
            if isinstance(stats, TokenStats):
                logprobs[rows, : stats.logprobs.shape[1]] = stats.logprobs.detach().to(logprobs)
            num_micro_batches += 1
            num_forwarded += num_forwarded_tokens(micro_batch, path=path)
            num_real += num_real_tokens(micro_batch, path=path)
        self.finish_backward()
        norm = gradient_norm(self.module.parameters())
        if not torch.isfinite(norm):
            raise NotFiniteError(f"grad_norm is {float(norm)}, {self._find_bad_gradient(batch, objective)}")
        return GradientPass(sums.metrics(), norm, num_micro_batches, 1 - num_real / max(num_forwarded, 1), logprobs)

    def _passes(self, batch: GroupBatch, objective: Any) -> Iterator[tuple[Tensor, GroupBatch, Any, LossOutput]]:
        """Forward and backward of each micro-batch in turn: its rows, itself, what forward gave, and the loss."""
        plan = plan_micro_batches(batch, self.train.micro_batch_tokens, path=self.train.path)
        parts = [(rows, batch.select_rows(rows)) for rows in plan]
        micro_batches = [(rows, part) for rows, part in parts if part.num_sampled_tokens > 0]
        for index, (rows, micro_batch) in enumerate(micro_batches, start=1):
            stats = self.forward(micro_batch, objective)
            output: LossOutput = objective(micro_batch, stats)
            loss = output.loss.item()
            if not math.isfinite(loss):
                place = f"micro-batch {index} of {len(micro_batches)}"
                raise NotFiniteError(f"loss is {loss} in {place}; {_inputs_not_finite(micro_batch, stats)}")
            if output.loss.requires_grad:
                output.loss.backward()
            yield rows, micro_batch, stats, output

    def _find_bad_gradient(self, batch: GroupBatch, objective: Any) -> str:
        """Where a gradient stops being finite, found by going over the micro-batches once more."""
        self.module.zero_grad()
        for index, _ in enumerate(self._passes(batch, objective), start=1):
            bad = [
                name
                for name, parameter in self.module.named_parameters()
                if parameter.grad is not None and not parameter.grad.isfinite().all()
            ]
            if bad:
                return f"first not finite in micro-batch {index}, in {len(bad)} parameter tensors, such as {bad[0]}"
        return "though no single gradient is: their squares overflow when added up"


def _inputs_not_finite(micro_batch: GroupBatch, stats: Any) -> str:
    tensors = {
        "logprobs of the actor": getattr(stats, "logprobs", None),
        "entropy": getattr(stats, "entropy", None),
        "values of the critic": stats if isinstance(stats, Tensor) else None,
        "old_logprobs": micro_batch.old_logprobs,
        "reference_logprobs": micro_batch.reference_logprobs,
        "sampler_logprobs": micro_batch.sampler_logprobs,
        "advantages": micro_batch.advantages,
        "values": micro_batch.values,
        "returns": micro_batch.returns,
    }
    bad = [name for name, tensor in tensors.items() if tensor is not None and not tensor.isfinite().all()]
    if not bad:
        return "everything that goes into it is finite, so the objective itself overflows"
    return f"not finite already: {', '.join(bad)}"
