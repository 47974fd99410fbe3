"""Weights on their way from the ranks that train to rollout engines in another pool.

The first rank gathers tensors into chunks of a bounded size. It puts each once into the object store, from where every
rollout worker takes it while it updates its engine; or it announces the chunk there and broadcasts it (`weight_wire`).
Nobody holds more than a few chunks at a time.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.cluster.policy.weight_wire import Announcement, WireSender, WireTaker
from mmrl.engines.base import NamedWeights
from mmrl.errors import RunFailedError

CHUNK_BYTES = 64 << 20
"""A chunk ends with the tensor that fills it, so a larger tensor is a chunk of its own."""

MAX_WAITING = 2
"""Chunks that a rollout worker holds beside the one that it loads."""


@dataclass(frozen=True)
class Chunk:
    """One version's weights number `index`, by checkpoint name, or word of those that come by broadcast. is_last: no
    more come."""

    version: int
    index: int
    weights: tuple[tuple[str, Tensor], ...] | Announcement
    is_last: bool


@dataclass(frozen=True)
class WeightStream:
    """workers: a handle of the rollout group, which any process may call.

    dtype: of the tensors that travel; that of the engine, which would round them anyway. by_broadcast: rather than
    through the object store.
    """

    workers: Any
    dtype: torch.dtype
    by_broadcast: bool = False
    chunk_bytes: int = CHUNK_BYTES

    def send(self, weights: NamedWeights, version: int, *, wire: WireSender | None = None) -> None:
        """Only the sender calls it, while the other ranks go through `weights`, since each tensor is gathered by all.
        wire: for a stream by broadcast."""
        for index, (part, is_last) in enumerate(self._chunks(weights, on_cpu=wire is None)):
            what = part if wire is None else wire.announce(part, self.dtype)
            self.workers.call("deliver", self.workers.put(Chunk(version, index, what, is_last)))
            if wire is not None:
                wire.send(part, self.dtype)

    def _chunks(self, weights: NamedWeights, *, on_cpu: bool) -> Iterator[tuple[tuple[tuple[str, Tensor], ...], bool]]:
        part: list[tuple[str, Tensor]] = []
        num_bytes = 0
        for name, weight in weights:
            if num_bytes >= self.chunk_bytes:
                yield tuple(part), False
                part, num_bytes = [], 0
            weight = weight.detach()
            part.append((name, weight.to("cpu", self.dtype, copy=True) if on_cpu else weight.to(self.dtype)))
            num_bytes += part[-1][1].nbytes
        yield tuple(part), True


class Mailbox:
    """Where a rollout worker takes the chunks of a version from while another thread puts them in."""

    def __init__(self, *, timeout_s: float, wire: WireTaker | None = None) -> None:
        """wire: by which announced weights come."""
        self._chunks: queue.Queue[Chunk] = queue.Queue(MAX_WAITING)
        self._timeout_s = timeout_s
        self._wire = wire

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
            yield from self._tensors(chunk.weights)
            index, is_last = index + 1, chunk.is_last

    def _tensors(self, weights: tuple[tuple[str, Tensor], ...] | Announcement) -> Sequence[tuple[str, Tensor]]:
        if not isinstance(weights, Announcement):
            return weights
        assert self._wire is not None, "weights are announced to a worker that takes part in no broadcast"
        return self._wire.take(weights)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
