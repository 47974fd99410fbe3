"""What answers were worth to the policy that the run began with, found where they were computed before.

At the run's begin the policy is the reference, so it computes what is missing for every batch to come, and no second
model is held. A run that goes on finds all of it; only where that is lost is the first model loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.errors import RunFailedError
from mmrl.trainer.reference_cache import ReferenceCache

Compute = Callable[[GroupBatch], Tensor]


class ReferenceLogprobs:
    """cache: what was computed before. compute: the reference itself, as long as there is one."""

    def __init__(self, cache: ReferenceCache) -> None:
        self._cache = cache
        self.compute: Compute | None = None

    def missing(self, batch: GroupBatch) -> bool:
        """Whether an answer of the batch was never computed; its images may be without pixels."""
        return not bool(self._cache.find(batch)[1].all())

    def prepare(self, batches: Iterable[GroupBatch], compute: Compute) -> int:
        """Computes and keeps what is missing of `batches`. Returns the number of answers that were."""
        total = 0
        for batch in batches:
            _, known = self._cache.find(batch)
            if not known.all():
                total += int((~known).sum())
                self._add(batch, ~known, compute)
        return total

    def __call__(self, batch: GroupBatch) -> Tensor:
        """(B, T) float32, zero where response_mask is 0."""
        logprobs, known = self._cache.find(batch)
        if known.all():
            return logprobs
        if self.compute is None:
            raise RunFailedError(
                f"log-probabilities of the reference for {int((~known).sum())} answers are no longer in "
                f"{self._cache.path}, where they were when the run began; start the run again: it computes them anew"
            )
        rows, computed = self._add(batch, ~known, self.compute)
        logprobs[rows, : computed.shape[1]] = computed
        return logprobs

    def _add(self, batch: GroupBatch, wanted: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        """The rows that are wanted and their log-probabilities."""
        rows = torch.nonzero(wanted).flatten()
        some = batch.select_rows(rows)
        computed = compute(some) * some.response_mask
        self._cache.add(some, computed)
        return rows, computed
