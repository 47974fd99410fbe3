"""The Ray actor that a worker process is. Its methods run in three threads, one a concurrency group of Ray:

- calls of workers, one after the other;
- calls marked concurrent;
- questions of the controller, which are answered whatever the others do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

from mmrl.cluster.failures import Failure
from mmrl.cluster.host import Layout, Setup, Stacks, WorkerHost, free_port
from mmrl.cluster.packing import Packed

CONCURRENT, WATCH = "concurrent", "watch"


@dataclass(frozen=True)
class Place:
    """Where a worker process landed. gpus: ids of those it was given, as the node counts them."""

    pid: int
    node_id: str
    address: str
    gpus: tuple[str, ...]


class RayHost:
    def __init__(self) -> None:
        self._host = WorkerHost()
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # what a worker starts can then be found, and ended, when the worker is gone

    @ray.method(concurrency_group=WATCH)
    def place(self) -> Place:
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return Place(os.getpid(), context.get_node_id(), ray.util.get_node_ip_address(), tuple(map(str, gpus)))

    @ray.method(concurrency_group=WATCH)
    def free_port(self, address: str) -> int:
        return free_port(address)

    @ray.method(concurrency_group=WATCH)
    def prepare(self, setup: Setup) -> None:
        self._host.prepare(setup)

    @ray.method(concurrency_group=WATCH)
    def stacks(self) -> Stacks:
        return self._host.stacks()

    def build(self, group: str, layout: Layout, *items: Any) -> Packed | Failure:
        return self._host.build(group, layout, items)

    def call(self, group: str, method: str, layout: Layout, *items: Any) -> Packed | Failure:
        return self._host.call(group, method, layout, items)

    @ray.method(concurrency_group=CONCURRENT)
    def call_concurrently(self, group: str, method: str, layout: Layout, *items: Any) -> Packed | Failure:
        return self._host.call(group, method, layout, items)

    def close(self) -> None:
        self._host.close()


def start_host(options: Mapping[str, Any]) -> Any:
    """A handle to a new worker process, placed and equipped as Ray's actor options say."""
    decorate: Any = ray.remote(concurrency_groups={CONCURRENT: 1, WATCH: 1})  # type: ignore[call-overload]
    return decorate(RayHost).options(max_restarts=0, max_task_retries=0, **options).remote()
