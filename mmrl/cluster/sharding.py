"""The dispatch `shard`: items divided over the workers, each to one of them, and their results in the items' order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mmrl.cluster.dispatch import Arguments, Dispatch, Plan

Cost = Callable[[Any], float]


def chunk_sizes(num_items: int, num_workers: int) -> list[int]:
    """How many items each worker gets where all cost the same: they differ by one at most, the larger ones first."""
    size, rest = divmod(num_items, num_workers)
    return [size + (rank < rest) for rank in range(num_workers)]


def shares(costs: Sequence[float], num_workers: int) -> list[list[int]]:
    """For each worker the indices of its items, ascending. Every index is in exactly one share.

    Items of equal cost are divided in order, 124 over 15 as 9, 9, 9, 9, 8, …. Else the dearest item left always goes to
    the worker with the least so far (Graham 1969: at most 4/3 of the best possible largest share).
    """
    if len(set(costs)) <= 1:
        indices = iter(range(len(costs)))
        return [[next(indices) for _ in range(size)] for size in chunk_sizes(len(costs), num_workers)]
    totals, parts = [0.0] * num_workers, [[] for _ in range(num_workers)]  # type: tuple[list[float], list[list[int]]]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        rank = min(range(num_workers), key=lambda rank: (totals[rank], len(parts[rank]), rank))
        totals[rank] += costs[index]
        parts[rank].append(index)
    return [sorted(part) for part in parts]


def own_cost(item: Any) -> float:
    """The number in an item's attribute `cost`, else its length, else 1."""
    cost = getattr(item, "cost", None)
    if isinstance(cost, (int, float)) and not isinstance(cost, bool):
        return float(cost)
    return float(len(item)) if hasattr(item, "__len__") else 1.0


@dataclass(frozen=True)
class Shard(Dispatch):
    """Lists and tuples among the arguments are divided alike, so all must be of one length; the rest goes to every
    worker. Every worker is called, with empty lists where there are fewer items than workers, so that it can take its
    part in what all must do together.

    The method returns a list with a result an item, or None; the group returns them in the order of the items, or None.
    cost: what an item weighs; the first divided argument decides. By default `own_cost`. `plan` does it all, since
    only it knows where each item went; split and join are not used.
    """

    split: Callable[..., Sequence[Arguments | None]] = field(default=tuple, init=False, repr=False)
    join: Callable[[list[Any]], Any] = field(default=list, init=False, repr=False)
    cost: Cost = own_cost

    def plan(self, num_workers: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
        """Raises ValueError where there is nothing to divide, or lists of different lengths."""
        divided = self._divided(args, kwargs)
        parts = shares([self.cost(item) for item in divided], num_workers)
        calls: list[Arguments | None] = [
            (
                tuple(_part_of(value, part) for value in args),
                {name: _part_of(value, part) for name, value in kwargs.items()},
            )
            for part in parts
        ]
        return Plan(calls, partial(_join, parts))

    def _divided(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        named = {f"argument {place}": value for place, value in enumerate(args)} | dict(kwargs)
        lists = {name: value for name, value in named.items() if _is_divided(value)}
        if not lists:
            raise ValueError("a 'shard' method needs a list or tuple among its arguments to divide; it got none")
        if len({len(value) for value in lists.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(value)}" for name, value in lists.items())
            raise ValueError(
                f"the lists of a 'shard' method are divided alike and must be of one length ({lengths} items); give "
                "what every worker needs whole in another form, such as a dict or a dataclass"
            )
        return next(iter(lists.values()))


def _is_divided(value: Any) -> bool:
    return type(value) in (list, tuple)


def _part_of(value: Any, part: Sequence[int]) -> Any:
    return type(value)(value[index] for index in part) if _is_divided(value) else value


def _join(parts: Sequence[Sequence[int]], results: list[Any]) -> list[Any] | None:
    if all(result is None for result in results):
        return None
    joined: list[Any] = [None] * sum(map(len, parts))
    for rank, (part, result) in enumerate(zip(parts, results, strict=True)):
        if not isinstance(result, (list, tuple)) or len(result) != len(part):
            got = f"{len(result)} results" if isinstance(result, (list, tuple)) else f"a {type(result).__name__}"
            raise ValueError(
                f"a 'shard' method returned {got} on rank {rank} for {len(part)} items; it returns a list with one "
                "result an item, or None on every worker"
            )
        for index, item in zip(part, result, strict=True):
            joined[index] = item
    return joined
