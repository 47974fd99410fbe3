"""How a call of a worker group is divided: `@dispatch` on a worker's method says it once, every caller has it.

    class Scorer:
        @dispatch("shard")
        def score(self, rollouts: list[Rollout]) -> list[float]: ...

| name | arguments | result |
| --- | --- | --- |
| broadcast | the same to every worker | the list of all results, by rank |
| broadcast_rank_zero | the same to every worker | that of rank 0; the others end with their processes |
| rank_zero | to worker 0 alone | its result |
| shard | lists and tuples divided, the rest the same to every worker | one list, in the order of the items |

Anything else is a `Dispatch(split, join)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""


@dataclass(frozen=True)
class Plan:
    """calls: for each worker its arguments, None where it has no part. join: makes one result of those of the workers
    that have a part, by rank."""

    calls: list[Arguments | None]
    join: Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Dispatch:
    """split(num_workers, *args, **kwargs): a list with the (args, kwargs) of each worker, None where it has no part.
    join(results): the group's result from those of its workers, by rank.
    """

    split: Callable[..., Sequence[Arguments | None]]
    join: Callable[[list[Any]], Any]

    def plan(self, num_workers: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
        """Raises ValueError where `split` gives another number of calls than there are workers."""
        calls = list(self.split(num_workers, *args, **kwargs))
        if len(calls) != num_workers:
            raise ValueError(
                f"a dispatch split the call into {len(calls)} for {num_workers} workers; `split` gives one (args, "
                "kwargs) a worker, or None for one that has no part"
            )
        return Plan(calls, self.join)


@dataclass(frozen=True)
class MethodMark:
    """What `@dispatch` says of a method. concurrent: it may run while another method of the worker does."""

    dispatch: Dispatch
    concurrent: bool = False


def dispatch(how: str | Dispatch, *, concurrent: bool = False) -> Callable[[MethodT], MethodT]:
    """Marks a method of a worker class as one that a group calls.

    how: a name of the table above, or a Dispatch. concurrent: the method runs in a second thread of its worker, so it
    answers while another method runs there; calls of concurrent methods run one after the other, in the order in which
    a caller made them. What both threads touch is the worker's to guard.

    Raises ValueError for a name that is none.
    """
    mark = MethodMark(how if isinstance(how, Dispatch) else named_dispatch(how), concurrent)

    def add_mark(method: MethodT) -> MethodT:
        method.__mmrl_dispatch__ = mark  # type: ignore[attr-defined]
        return method

    return add_mark


def marked_methods(worker_class: type) -> dict[str, MethodMark]:
    """The methods of a class that a group calls. One that overrides a marked method need not be marked again."""
    marks: dict[str, MethodMark] = {}
    for owner in reversed(worker_class.__mro__):
        for name, value in vars(owner).items():
            mark = getattr(value, "__mmrl_dispatch__", None)
            if isinstance(mark, MethodMark):
                marks[name] = mark
    return marks


def named_dispatch(name: str) -> Dispatch:
    """The dispatch of a name of the table above. Raises ValueError for a name that is none."""
    from mmrl.cluster.sharding import Shard

    if name == "shard":
        return Shard()
    if name not in _DISPATCHES:
        names = [*_DISPATCHES, "shard"]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}, or a Dispatch(split, join)"
        raise ValueError(f"there is no dispatch {name!r}; {hint}")
    return _DISPATCHES[name]


def _to_all(num_workers: int, *args: Any, **kwargs: Any) -> list[Arguments | None]:
    call = (args, kwargs)
    return [call] * num_workers


def _to_rank_zero(num_workers: int, *args: Any, **kwargs: Any) -> list[Arguments | None]:
    return [(args, kwargs), *[None] * (num_workers - 1)]


def _first(results: list[Any]) -> Any:
    return results[0]


_DISPATCHES = {
    "broadcast": Dispatch(_to_all, list),
    "broadcast_rank_zero": Dispatch(_to_all, _first),
    "rank_zero": Dispatch(_to_rank_zero, _first),
}
