"""The gradient of one mini-batch, accumulated over micro-batches of one token budget.

The objective divides by counts of the whole mini-batch, so the sum over micro-batches is the gradient whatever the
budget, and the sum over ranks is the gradient whatever each of them has.

Where the weights are divided among ranks no rank may stop by itself while the others go on: a fault is kept until all
passes are made, then told to every rank, and all raise the same error.
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
from mmrl.engines.finite import NotFiniteError, first_fault
from mmrl.engines.metric_sums import MetricSums
from mmrl.engines.micro_batches import num_forwarded_tokens, num_real_tokens
from mmrl.engines.optimizer import gradient_norm
from mmrl.engines.passes import Pass, plan_passes
from mmrl.models.fast.functions import gradients_added_in_place
from mmrl.models.lockstep import Lockstep, everyones, local_part, nothing_of


@dataclass(frozen=True)
class GradientPass:
    """What a pass over a mini-batch left beside the gradients, of all ranks together.

    metrics: the objective's, over the whole mini-batch.
    norm: the 2-norm of the gradient of all parameters together, a scalar.
    num_micro_batches: micro-batches that were forwarded, by each rank where there are several.
    num_tokens: of the mini-batch, each prompt once, and the responses.
    padding_share: share of padding in the tokens that were forwarded.
    logprobs: (B, T) that the pass computed of this rank's rows, without their graph, zero where response_mask is 0; all
        zero where the module computes none.
    """

    metrics: dict[str, float]
    norm: Tensor
    num_micro_batches: int
    num_tokens: int
    padding_share: float
    logprobs: Tensor


@dataclass(frozen=True)
class GradientAccumulator:
    """Adds the gradient of an objective to the parameters of `module`.

    forward: what the objective takes besides the micro-batch, with gradients: forward(micro_batch, objective).
    finish_backward: called when every micro-batch has gone backward; brings what was held back to the weights.
    lockstep: of the module's passes, where its weights are divided among ranks.
    An objective is called as objective(micro_batch, what forward gave) and returns a `LossOutput`.
    """

    module: nn.Module
    train: TrainConfig
    forward: Callable[[GroupBatch, Any], Any]
    finish_backward: Callable[[], None] = lambda: None
    lockstep: Lockstep | None = None

    def accumulate(self, batch: GroupBatch, objective: Any) -> GradientPass:
        """One pass over `batch`. Raises NotFiniteError if the loss of a micro-batch or the gradient is not finite."""
        logprobs = torch.zeros_like(batch.response_mask)
        mine = _Tally(num_tokens=num_real_tokens(batch))
        with gradients_added_in_place(self.lockstep is None):
            for done in self._passes(batch, objective):
                mine.count(done, path=self.train.path)
                if isinstance(done.stats, TokenStats) and not done.part.is_filler:
                    logprobs[done.part.rows, : done.stats.logprobs.shape[1]] = done.stats.logprobs.detach().to(logprobs)
            self.finish_backward()
        norm = gradient_norm(self.module.parameters())
        mine.squared_norm = float(norm.double().square())
        tallies = everyones(self.lockstep, mine)
        fault = first_fault([tally.fault for tally in tallies])
        if fault is not None:
            raise NotFiniteError(fault)
        if self.lockstep is not None:
            self._leave_out_image_weights(tallies)
            total = sum(tally.squared_norm for tally in tallies) / self.lockstep.num_replicas
            norm = norm.new_tensor(math.sqrt(total))
        if not torch.isfinite(norm):
            raise NotFiniteError(f"grad_norm is {float(norm)}, {self._find_bad_gradient(batch, objective)}")
        return _together(tallies, norm, logprobs)

    def _passes(self, batch: GroupBatch, objective: Any) -> Iterator[_Done]:
        """Forward and backward of each micro-batch in turn."""
        plan = plan_passes(batch, self.train, self.lockstep)
        for index, part in enumerate(plan, start=1):
            stats = self.forward(part.micro_batch, objective)
            output: LossOutput | None = None if part.is_filler else objective(part.micro_batch, stats)
            fault = None if output is None else _fault_of(output, part, stats, f"micro-batch {index} of {len(plan)}")
            if fault is not None and self.lockstep is None:
                raise NotFiniteError(fault)
            if self.lockstep is not None:
                # All of a pass goes backward on every rank, whatever the loss looks at.
                nothing = nothing_of(stats)
                (nothing if output is None else output.loss + nothing).backward()
            elif output is not None and output.loss.requires_grad:
                output.loss.backward()
            yield _Done(part, stats, output, fault)

    def _leave_out_image_weights(self, tallies: list[_Tally]) -> None:
        """Where no rank had an image, what only images train has no gradient, as in one process; it has one of zeros
        from the passes that ran for the sake of the other ranks."""
        if self.lockstep is not None and not any(tally.has_images for tally in tallies):
            for weight in self.lockstep.image_weights:
                weight.grad = None

    def _find_bad_gradient(self, batch: GroupBatch, objective: Any) -> str:
        """Where a gradient stops being finite, found by going over the micro-batches once more."""
        self.module.zero_grad()
        for index, _ in enumerate(self._passes(batch, objective), start=1):
            mine = [
                name
                for name, parameter in self.module.named_parameters()
                if parameter.grad is not None and not local_part(parameter.grad).isfinite().all()
            ]
            bad = list(dict.fromkeys(name for names in everyones(self.lockstep, mine) for name in names))
            if bad:
                return f"first not finite in micro-batch {index}, in {len(bad)} parameter tensors, such as {bad[0]}"
        return "though no single gradient is: their squares overflow when added up"


@dataclass(frozen=True, eq=False)
class _Done:
    """A pass that went forward and backward. output: None for a filler, which no objective sees."""

    part: Pass
    stats: Any
    output: LossOutput | None
    fault: str | None


class _Tally:
    """What the passes of one rank add up to; ranks send it to each other."""

    def __init__(self, *, num_tokens: int) -> None:
        self.fault: str | None = None
        self.sums = MetricSums()
        self.squared_norm = 0.0
        self.has_images = False
        self.num_tokens = num_tokens
        self.num_passes = self.num_forwarded = self.num_real = 0

    def count(self, done: _Done, *, path: Any) -> None:
        micro_batch = done.part.micro_batch
        self.fault = self.fault or done.fault
        self.num_passes += 1
        self.num_forwarded += num_forwarded_tokens(micro_batch, path=path)
        if done.output is not None:
            self.sums.add(done.output)
            self.num_real += num_real_tokens(micro_batch, path=path)
            self.has_images |= micro_batch.has_images


def _together(tallies: list[_Tally], norm: Tensor, logprobs: Tensor) -> GradientPass:
    sums = MetricSums()
    for tally in tallies:
        sums.merge(tally.sums)
    num_forwarded, num_real = sum(each.num_forwarded for each in tallies), sum(each.num_real for each in tallies)
    return GradientPass(
        metrics=sums.metrics(),
        norm=norm,
        num_micro_batches=max(tally.num_passes for tally in tallies),
        num_tokens=sum(tally.num_tokens for tally in tallies),
        padding_share=1 - num_real / max(num_forwarded, 1),
        logprobs=logprobs,
    )


def _fault_of(output: LossOutput, part: Pass, stats: Any, place: str) -> str | None:
    loss = output.loss.item()
    if math.isfinite(loss):
        return None
    return f"loss is {loss} in {place}; {_inputs_not_finite(part.micro_batch, stats)}"


def _inputs_not_finite(micro_batch: GroupBatch, stats: Any) -> str:
    tensors = {
        "logprobs of the actor": getattr(stats, "logprobs", None),
        "entropy": getattr(stats, "entropy", None),
        "what critic or reward model gave": stats if isinstance(stats, Tensor) else None,
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
