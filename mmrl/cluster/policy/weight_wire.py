"""A broadcast group over two pools: the first rank that trains, and every worker that samples.

On GPUs tensors go from device to device by NCCL, on CPUs the same code goes through gloo. Tensors are announced before
they come (`Announcement`, by a call), so that a taker knows name and shape of each and can account for all of them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_GROUP = "mmrl-weights"


@dataclass(frozen=True)
class Meeting:
    """Where the group meets. host, port: of the sender's store. num_ranks: the sender, which is rank 0, and the takers.
    timeout_s: longest wait of one for the others."""

    host: str
    port: int
    num_ranks: int
    timeout_s: float


@dataclass(frozen=True)
class Announcement:
    """What comes next through the group: shapes by checkpoint name, in order, all of one dtype."""

    meeting: Meeting
    dtype: torch.dtype
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


class WireSender:
    """Rank 0. Announce a chunk to the takers, then `send` it: the group is joined by all with the first one."""

    def __init__(self, num_takers: int, device: torch.device, *, timeout_s: float) -> None:
        self._device = device
        host, num_ranks = os.environ.get("MASTER_ADDR", "127.0.0.1"), num_takers + 1
        self._store = _store_at(host, num_ranks, timedelta(seconds=timeout_s))
        self.meeting = Meeting(host, self._store.port, num_ranks, timeout_s)
        self._group: Any = None

    def announce(self, weights: Sequence[tuple[str, Tensor]], dtype: torch.dtype) -> Announcement:
        return Announcement(self.meeting, dtype, tuple((name, tuple(weight.shape)) for name, weight in weights))

    def send(self, weights: Sequence[tuple[str, Tensor]], dtype: torch.dtype) -> None:
        """Returns when they have left; they may change then."""
        if self._group is None:
            self._group = _join(self._store, 0, self.meeting, self._device)
        _broadcast(self._group, torch.cat([weight.to(self._device, dtype).reshape(-1) for _, weight in weights]))

    def close(self) -> None:
        if self._group is not None:
            self._group.shutdown()
            self._group = None


class WireTaker:
    """One of the others. rank: its own in the group, from 1."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self._rank = rank
        self._device = device
        self._meeting: Meeting | None = None
        self._group: Any = None

    def take(self, announced: Announcement) -> list[tuple[str, Tensor]]:
        """The tensors, on this worker's device. They share one buffer."""
        if announced.meeting != self._meeting:
            self._meet(announced.meeting)
        sizes = [prod(shape) for _, shape in announced.shapes]
        buffer = torch.empty(sum(sizes), dtype=announced.dtype, device=self._device)
        _broadcast(self._group, buffer)
        return [
            (name, part.view(shape)) for (name, shape), part in zip(announced.shapes, buffer.split(sizes), strict=True)
        ]

    def _meet(self, meeting: Meeting) -> None:
        self.close()
        store = dist.TCPStore(
            meeting.host, meeting.port, meeting.num_ranks, is_master=False, timeout=timedelta(seconds=meeting.timeout_s)
        )
        self._group, self._meeting = _join(store, self._rank, meeting, self._device), meeting

    def close(self) -> None:
        if self._group is not None:
            self._group.shutdown()
            self._group = self._meeting = None


def _store_at(host: str, num_ranks: int, timeout: timedelta) -> dist.TCPStore:
    """A store that listens at this address alone; by itself it would at all of the machine, and it asks nobody who they
    are."""
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    listening = socket.create_server((host, 0), family=family)
    return dist.TCPStore(
        host,
        listening.getsockname()[1],
        num_ranks,
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listening.detach(),  # the store closes it
    )


def _join(store: dist.TCPStore, rank: int, meeting: Meeting, device: torch.device) -> Any:
    """A group beside torch's own of the pool: the two pools have no default group in common."""
    prefixed, timeout = dist.PrefixStore(_GROUP, store), timedelta(seconds=meeting.timeout_s)
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(prefixed, rank, meeting.num_ranks, options)
    return dist.ProcessGroupGloo(prefixed, rank, meeting.num_ranks, timeout)


def _broadcast(group: Any, buffer: Tensor) -> None:
    """From rank 0 to all. Waits for the device too: the sender's weights change behind it, the taker's are read."""
    options = dist.BroadcastOptions()
    options.rootRank = 0
    group.broadcast([buffer], options).wait()
    if buffer.is_cuda:
        torch.cuda.current_stream(buffer.device).synchronize()
