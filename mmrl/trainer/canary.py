"""The canary in the loop: the sampler's logprobs against the actor's, at every step, before any weight moves.

Where an old-logprob pass runs anyway it is compared there; otherwise the logprobs of the update's own forward pass
are, so the check costs no pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.config import RunConfig
from mmrl.engines.base import Objective
from mmrl.engines.canary import check, compare


class Canary:
    """Collects what it observes; `conclude` gives the metrics to `record` and stops the run beyond a bound."""

    def __init__(self, config: RunConfig, record: Callable[[dict[str, float]], None]) -> None:
        self._record = record
        self._bounds = config.canary
        self._dtype = config.model.dtype
        self._rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self._logprobs: dict[int, tuple[float, ...]] = {}

    def observe(self, batch: GroupBatch, logprobs: Tensor) -> None:
        assert batch.sampler_logprobs is not None
        self._keep_logprobs(batch, logprobs)
        counted = batch.response_mask.bool()
        prompt_has_image = torch.tensor([bool(prompt.images) for prompt in batch.prompts], dtype=torch.bool)
        has_image = prompt_has_image[batch.prompt_of_row][:, None].expand_as(counted)
        self._rows.append(
            (
                batch.sampler_logprobs[counted],
                logprobs.detach().float().cpu()[counted],
                torch.ones(int(counted.sum())),
                has_image[counted],
            )
        )

    def watch(self, objective: Objective) -> Objective:
        """The same objective, with each micro-batch's logprobs observed."""
        return _Watched(objective, self)

    def take_logprobs(self) -> dict[int, tuple[float, ...]]:
        """Row of the step's batch -> the actor's logprob of each of its tokens, for the rows observed since last asked;
        0.0 on tokens that the policy did not sample."""
        taken, self._logprobs = self._logprobs, {}
        return taken

    def _keep_logprobs(self, batch: GroupBatch, logprobs: Tensor) -> None:
        if batch.row_numbers is None:
            return
        rows = zip(batch.row_numbers.tolist(), batch.response_lengths.tolist(), logprobs.tolist(), strict=True)
        self._logprobs |= {number: tuple(values[:length]) for number, length, values in rows}

    def conclude(self) -> None:
        """Records the metrics of all that was observed since the last call; RunFailedError beyond a bound."""
        if not self._rows:
            return
        sampler, actor, mask, has_image = (torch.cat(column) for column in zip(*self._rows, strict=True))
        self._rows = []
        gap = compare(sampler, actor, mask, has_image, gap=self._bounds.gap)
        self._record(gap.metrics())
        check(gap, self._bounds, self._dtype)


class _Watched:
    def __init__(self, objective: Objective, canary: Canary) -> None:
        self._objective = objective
        self._canary = canary
        self.needs_entropy = objective.needs_entropy

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        self._canary.observe(micro_batch, stats.logprobs)
        return self._objective(micro_batch, stats)
