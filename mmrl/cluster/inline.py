"""The executor `inline`: one worker in the calling process. A call is the call of its method, errors as they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mmrl.cluster.base import Pending, WorkerContext
from mmrl.cluster.dispatch import MethodMark, Plan
from mmrl.cluster.group import WorkerGroup, callable_methods, check_group, find_method, logger
from mmrl.config.placement import PlacementConfig
from mmrl.errors import RunFailedError


class InlineExecutor:
    """One pool of one worker. Deadlines do not apply: nobody is there to watch."""

    def __init__(self, placement: PlacementConfig) -> None:
        ((self._pool, config),) = placement.pools.items()
        self._context = WorkerContext(self._pool, num_threads=config.num_threads)
        self._workers: dict[str, object] = {}
        self._closed = False

    @property
    def pools(self) -> Mapping[str, int]:
        return {self._pool: 1}

    def create(self, name: str, worker_class: type, *args: Any, pool: str | None = None, **kwargs: Any) -> WorkerGroup:
        self.check_open(name)
        check_group(name, self._workers, pool, self.pools)
        callable_methods(worker_class)
        worker = _timed(name, "__init__", lambda: worker_class(self._context, *args, **kwargs))
        self._workers[name] = worker
        return WorkerGroup(name, worker_class, 1, InlineCalls(name, worker, self))

    def put(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        workers, self._workers = list(self._workers.values()), {}
        for worker in reversed(workers):
            close = getattr(worker, "close", None)
            if callable(close):
                close()

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.close()
        with suppress(Exception):  # what is under way says more than what closing after it meets
            self.close()

    def check_open(self, what: str) -> None:
        """Raises RunFailedError once the executor is closed."""
        if self._closed:
            raise RunFailedError(f"{what} was called on an executor that is closed")


@dataclass(frozen=True)
class Ended:
    """A call that has ended before its caller looked, with a result or an error."""

    value: Any = None
    error: BaseException | None = None

    def done(self) -> bool:
        return True

    def result(self, timeout_s: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class InlineCalls:
    """How the group of `worker` is called."""

    def __init__(self, name: str, worker: object, executor: InlineExecutor) -> None:
        self.name = name
        self.worker = worker
        self._executor = executor

    def start(self, method: str, mark: MethodMark, plan: Plan, *, deadline_s: float | None) -> Pending:
        self._executor.check_open(f"{self.name}.{method}")
        try:
            return Ended(_timed(self.name, method, lambda: plan.join(list(self._results(method, plan)))))
        except Exception as error:
            return Ended(error=error)

    def _results(self, method: str, plan: Plan) -> Any:
        for call in plan.calls:
            if call is not None:
                args, kwargs = call
                yield getattr(self.worker, method)(*args, **kwargs)

    def remote(self) -> InlineWorkers:
        return InlineWorkers(self)


class InlineWorkers:
    """A handle to the group for its own process: what `RemoteWorkers` is between processes."""

    num_workers = 1

    def __init__(self, calls: InlineCalls) -> None:
        self._calls = calls

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """The joined result of a method. Raises as a call of the group does."""
        return self.start(method, *args, **kwargs).result()

    def start(self, method: str, /, *args: Any, deadline_s: float | None = None, **kwargs: Any) -> Pending:
        worker_class = type(self._calls.worker)
        mark = find_method(worker_class, callable_methods(worker_class), method)
        return self._calls.start(method, mark, mark.dispatch.plan(1, args, kwargs), deadline_s=deadline_s)

    def only(self, *ranks: int) -> InlineWorkers:
        """The workers of these ranks alone. Raises ValueError for a rank that there is not."""
        if ranks != (0,):
            raise ValueError(f"a group of one worker has rank 0 alone (got {', '.join(map(str, ranks)) or 'none'})")
        return self

    def put(self, value: Any) -> Any:
        return value


def _timed(group: str, method: str, call: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    try:
        return call()
    finally:
        logger.debug("%s.%s took %.3f s", group, method, time.perf_counter() - start)
