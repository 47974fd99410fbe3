"""`RemoteWorkers`: a handle to a worker group that workers of any pool can hold and call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ray

from mmrl.cluster.base import Pending
from mmrl.cluster.dispatch import MethodMark
from mmrl.cluster.failures import Failure, error_of
from mmrl.cluster.group import callable_methods, find_method
from mmrl.cluster.packing import unpack
from mmrl.cluster.ray_values import Reference, messages_of, put
from mmrl.errors import RunFailedError


@dataclass(frozen=True)
class RemoteWorkers:
    """The workers of a group, or those of some ranks. Their calls have no deadline of their own: the controller's, of
    the call in which this one is made, holds."""

    group: str
    worker_class: type
    pool: str
    actors: tuple[Any, ...]
    ranks: tuple[int, ...]

    @property
    def num_workers(self) -> int:
        return len(self.actors)

    def only(self, *ranks: int) -> RemoteWorkers:
        """The workers of these ranks alone. Raises ValueError for a rank that there is not."""
        missing = [rank for rank in ranks if rank not in self.ranks]
        if missing or not ranks:
            raise ValueError(
                f"group {self.group!r} has ranks {', '.join(map(str, self.ranks))} here (got "
                f"{', '.join(map(str, ranks)) or 'none'})"
            )
        return replace(self, actors=tuple(self.actors[self.ranks.index(rank)] for rank in ranks), ranks=ranks)

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """The joined result of a method. Raises as a call of the group does."""
        return self.start(method, *args, **kwargs).result()

    def start(self, method: str, /, *args: Any, **kwargs: Any) -> Pending:
        """Sends the call off, as `WorkerGroup.start` does."""
        mark = find_method(self.worker_class, self._methods, method)
        plan = mark.dispatch.plan(self.num_workers, args, kwargs)
        waiting = {}
        for place, message in enumerate(messages_of(plan)):
            if message is not None:
                layout, items = message
                actor = self.actors[place]
                remote = actor.call_concurrently if mark.concurrent else actor.call
                waiting[remote.remote(self.group, method, layout, *items)] = place
        return RemotePending(self, method, waiting, plan.join)

    def put(self, value: Any) -> Reference:
        """As the executor's `put`: tensors and arrays go to the node's shared memory once, and are read there."""
        return put(value)

    @cached_property
    def _methods(self) -> dict[str, MethodMark]:
        return callable_methods(self.worker_class)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_methods"}


@dataclass(frozen=True)
class RemotePending:
    """A call from worker to worker. waiting: the answer to come -> the place of its worker in the handle."""

    workers: RemoteWorkers
    method: str
    waiting: dict[Any, int]
    join: Callable[[list[Any]], Any]

    @property
    def _name(self) -> str:
        return f"{self.workers.group}.{self.method}"

    def done(self) -> bool:
        ready, _ = ray.wait(list(self.waiting), num_returns=len(self.waiting), timeout=0)
        return len(ready) == len(self.waiting)

    def result(self, timeout_s: float | None = None) -> Any:
        """The first worker that raises or dies ends the waiting."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        left, answers = list(self.waiting), {}
        while left:
            wait_s = None if end is None else max(0.0, end - time.monotonic())
            ready, left = ray.wait(left, num_returns=1, timeout=wait_s)
            if not ready:
                raise TimeoutError(f"{self._name} has not ended after {timeout_s:g} s; it goes on")
            for ref in ready:
                answers[self.waiting[ref]] = self._answer(ref)
        return self.join([answers[place] for place in sorted(answers)])

    def _answer(self, ref: Any) -> Any:
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayError as error:
            rank = self.workers.ranks[self.waiting[ref]]
            raise RunFailedError(
                f"{self._name} got no answer from rank {rank} of pool {self.workers.pool!r}, which is gone"
            ) from error
        if isinstance(answer, Failure):
            raise error_of(answer)
        return unpack(answer)
