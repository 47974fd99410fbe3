"""The canary in the loop: the sampler's logprobs against the actor's, at every step, before any weight moves.

Where an old-logprob pass runs anyway it is compared there; otherwise the logprobs of the update's own forward pass
are, so the check costs no pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.config import RunConfig
from mmrl.engines.canary import check, compare


class Canary:
    """`check` gives the metrics to `record` and stops the run beyond a bound."""

    def __init__(self, config: RunConfig, record: Callable[[dict[str, float]], None]) -> None:
        self._record = record
        self._bounds = config.canary
        self._dtype = config.model.dtype
        self._logprobs: dict[int, tuple[float, ...]] = {}

    def check(self, batch: GroupBatch, logprobs: Tensor) -> None:
        """logprobs: (B, T) of the actor before its update. Raises RunFailedError beyond a bound."""
        assert batch.sampler_logprobs is not None
        self._keep_logprobs(batch, logprobs)
        counted = batch.response_mask.bool()
        if not counted.any():
            return
        prompt_has_image = torch.tensor([bool(prompt.images) for prompt in batch.prompts], dtype=torch.bool)
        has_image = prompt_has_image[batch.prompt_of_row][:, None].expand_as(counted)
        gap = compare(
            batch.sampler_logprobs[counted],
            logprobs.float().cpu()[counted],
            torch.ones(int(counted.sum())),
            has_image[counted],
            gap=self._bounds.gap,
        )
        self._record(gap.metrics())
        check(gap, self._bounds, self._dtype)

    def take_logprobs(self) -> dict[int, tuple[float, ...]]:
        """Row of the step's batch -> the actor's logprob of each of its tokens, for the rows checked since last asked;
        0.0 on tokens that the policy did not sample."""
        taken, self._logprobs = self._logprobs, {}
        return taken

    def _keep_logprobs(self, batch: GroupBatch, logprobs: Tensor) -> None:
        if batch.row_numbers is None:
            return
        rows = zip(batch.row_numbers.tolist(), batch.response_lengths.tolist(), logprobs.tolist(), strict=True)
        self._logprobs |= {number: tuple(values[:length]) for number, length, values in rows}
