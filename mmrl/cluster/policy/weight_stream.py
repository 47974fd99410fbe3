"""Weights on their way from the ranks that train to rollout engines in another pool.

The first rank gathers tensors into chunks of a bounded size and puts each once into the object store; every rollout
worker takes it from there while it updates its engine. Nobody holds more than a few chunks at a time.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.engines.base import NamedWeights
from mmrl.errors import RunFailedError

CHUNK_BYTES = 64 << 20
"""A chunk ends with the tensor that fills it, so a larger tensor is a chunk of its own."""

MAX_WAITING = 2
"""Chunks that a rollout worker holds beside the one that it loads."""


@dataclass(frozen=True)
class Chunk:
    """One version's weights number `index`, by checkpoint name. is_last: no more come."""

    version: int
    index: int
    weights: tuple[tuple[str, Tensor], ...]
    is_last: bool


@dataclass(frozen=True)
class WeightStream:
    """workers: a handle of the rollout group, which any process may call.

    dtype: of the tensors that travel; that of the engine, which would round them anyway.
    """

    workers: Any
    dtype: torch.dtype
    chunk_bytes: int = CHUNK_BYTES

    def send(self, weights: NamedWeights, version: int, *, is_sender: bool) -> None:
        """Every rank calls it, since each tensor is gathered by all; only the sender keeps and sends."""
        if not is_sender:
            for _ in weights:
                pass
            return
        for index, (part, is_last) in enumerate(self._chunks(weights)):
            chunk = Chunk(version, index, part, is_last)
            self.workers.call("deliver", self.workers.put(chunk))

    def _chunks(self, weights: NamedWeights) -> Iterator[tuple[tuple[tuple[str, Tensor], ...], bool]]:
        part: list[tuple[str, Tensor]] = []
        num_bytes = 0
        for name, weight in weights:
            if num_bytes >= self.chunk_bytes:
                yield tuple(part), False
                part, num_bytes = [], 0
            part.append((name, weight.detach().to("cpu", self.dtype, copy=True)))
            num_bytes += part[-1][1].nbytes
        yield tuple(part), True


class Mailbox:
    """Where a rollout worker takes the chunks of a version from while another thread puts them in."""

    def __init__(self, *, timeout_s: float) -> None:
        self._chunks: queue.Queue[Chunk] = queue.Queue(MAX_WAITING)
        self._timeout_s = timeout_s

    def put(self, chunk: Chunk) -> None:
        """Waits while the worker is behind."""
        try:
            self._chunks.put(chunk, timeout=self._timeout_s)
        except queue.Full:
            raise RunFailedError(
                f"weight sync: nobody has taken the weights of version {chunk.version} for {self._timeout_s:.0f} s"
            ) from None

    def weights(self, version: int) -> NamedWeights:
        """All weights of one version, in order. Raises RunFailedError where they do not come, or are of another."""
        index, is_last = 0, False
        while not is_last:
            try:
                chunk = self._chunks.get(timeout=self._timeout_s)
            except queue.Empty:
                raise RunFailedError(
                    f"weight sync: part {index} of version {version} did not come for {self._timeout_s:.0f} s"
                ) from None
            if (chunk.version, chunk.index) != (version, index):
                raise RunFailedError(
                    f"weight sync: part {chunk.index} of version {chunk.version} came in place of part {index} of "
                    f"version {version}"
                )
            yield from chunk.weights
            index, is_last = index + 1, chunk.is_last
