"""`WorkerGroup`: one method run on all workers of a group, as its `@dispatch` says."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol

from mmrl.cluster.base import Pending
from mmrl.cluster.dispatch import MethodMark, Plan, marked_methods
from mmrl.errors import ConfigError, ConflictError

DEADLINE = "deadline_s"
"""The one keyword that a call takes for itself."""

logger = logging.getLogger("mmrl.calls")


class Calls(Protocol):
    """How a group reaches its workers."""

    def start(self, method: str, mark: MethodMark, plan: Plan, *, deadline_s: float | None) -> Pending: ...

    def remote(self) -> Any: ...


class WorkerGroup:
    """`group.method(*args, **kwargs)` waits for the result; `group.start("method", …)` gives a `Pending`, so that two
    groups can work at once. Only methods marked with `@dispatch` are there. `deadline_s=` in either sets the longest
    that this call may take, in place of placement.deadline_s.
    """

    def __init__(self, name: str, worker_class: type, num_workers: int, calls: Calls) -> None:
        self.name = name
        self.num_workers = num_workers
        self._class = worker_class
        self._calls = calls
        self._methods = callable_methods(worker_class)

    def start(self, method: str, /, *args: Any, deadline_s: float | None = None, **kwargs: Any) -> Pending:
        """Sends the call off. Raises AttributeError where the class marks no such method, ValueError where its dispatch
        cannot divide the arguments."""
        mark = find_method(self._class, self._methods, method)
        try:
            plan = mark.dispatch.plan(self.num_workers, args, kwargs)
        except ValueError as error:
            raise ValueError(f"{self.name}.{method}: {error}") from error
        return self._calls.start(method, mark, plan, deadline_s=deadline_s)

    def remote(self) -> Any:
        """A handle to the group that can be sent to workers of any pool: `RemoteWorkers`."""
        return self._calls.remote()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        find_method(self._class, self._methods, method)
        return partial(self._call, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """For a class that marks its `__call__`."""
        return self._call("__call__", *args, **kwargs)

    def _call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        return self.start(method, *args, **kwargs).result()

    def __repr__(self) -> str:
        return f"<WorkerGroup {self.name!r}: {self.num_workers} x {self._class.__name__}>"


def check_group(name: str, taken: Mapping[str, Any], pool: str | None, pools: Mapping[str, int]) -> str:
    """The pool of a new group, the first if none is named.

    Raises ConflictError for a name that is taken, ConfigError for a pool that there is not.
    """
    if name in taken:
        raise ConflictError(f"there is a worker group {name!r} already; give this one another name")
    if pool is None:
        return next(iter(pools))
    if pool not in pools:
        near = get_close_matches(pool, pools, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"pools: {', '.join(pools)}"
        raise ConfigError(f"worker group {name!r}: there is no pool {pool!r}; {hint}")
    return pool


def callable_methods(worker_class: type) -> dict[str, MethodMark]:
    """The marked methods of a class. Raises TypeError for one that a caller could not reach."""
    methods = marked_methods(worker_class)
    for name in methods:
        if name != "__call__" and (name.startswith("_") or hasattr(WorkerGroup, name)):
            raise TypeError(
                f"{worker_class.__name__}.{name} is marked with @dispatch, but a worker group has or hides that name "
                "itself; choose another"
            )
        if DEADLINE in inspect.signature(getattr(worker_class, name)).parameters:
            raise TypeError(
                f"{worker_class.__name__}.{name} has a parameter {DEADLINE!r}, which a call of a worker group takes as "
                "its deadline; choose another name"
            )
    return methods


def find_method(worker_class: type, methods: Mapping[str, MethodMark], name: str) -> MethodMark:
    """Raises AttributeError that names the nearest marked method."""
    if name in methods:
        return methods[name]
    owner = worker_class.__name__
    if callable(getattr(worker_class, name, None)):
        raise AttributeError(f"{owner}.{name} is not marked with @dispatch, so a worker group cannot call it; mark it")
    near = get_close_matches(name, methods, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(methods) or 'none'}"
    raise AttributeError(f"{owner} has no method {name!r} marked with @dispatch; {hint}")
