"""The prompt stream: every sample exactly once an epoch, in an order that (seed, epoch) alone decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.errors import DataError
from mmrl.types import Sample


class PromptStream:
    """Batches of samples without end. A batch may straddle two epochs, so none is dropped and none is short.

    The position is (epoch, position in its order): what `state` returns and `restore` takes, so that a stream that was
    stopped and restored at any point goes on as if it had not been.
    """

    def __init__(self, dataset: Sequence[Sample], *, batch_size: int, seed: int, shuffle: bool = True) -> None:
        if batch_size < 1:
            raise DataError(f"a batch needs at least 1 sample (got {batch_size})")
        if len(dataset) < batch_size:
            raise DataError(
                f"the data set has {len(dataset)} samples, fewer than one batch of {batch_size}; "
                f"use a batch of at most {len(dataset)}, or more data"
            )
        self._dataset = dataset
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._go_to(epoch=0, position=0)

    @property
    def epoch(self) -> int:
        """The epoch, from 0, of the next sample."""
        return self._epoch

    def next_batch(self) -> list[Sample]:
        """The next `batch_size` samples."""
        batch: list[Sample] = []
        while len(batch) < self._batch_size:
            taken = self._order[self._position : self._position + self._batch_size - len(batch)]
            batch.extend(self._dataset[int(index)] for index in taken)
            self._position += len(taken)
            if self._position == len(self._order):
                self._go_to(epoch=self._epoch + 1, position=0)
        return batch

    def state(self) -> dict[str, Any]:
        """Where the stream stands, and what its order depends on; JSON values."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "num_samples": len(self._dataset),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken. Raises DataError if it was taken of a stream of another order."""
        own = self.state()
        for key in ("seed", "shuffle", "num_samples"):
            if state[key] != own[key]:
                raise DataError(
                    f"the prompt stream cannot go on: {key} was {state[key]} and is now {own[key]}, so the order would "
                    "differ and samples be repeated or left out; resume with the data and settings of before"
                )
        self._go_to(epoch=state["epoch"], position=state["position"])

    def _go_to(self, *, epoch: int, position: int) -> None:
        self._epoch = epoch
        self._position = position
        self._order = self._order_of(epoch)

    def _order_of(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(len(self._dataset))
        # RandomState, because numpy promises never to change the numbers that it gives for a seed.
        generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([self._seed, epoch])))
        return generator.permutation(len(self._dataset))
