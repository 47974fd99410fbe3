"""How the arguments of a call get to worker processes: packed once, and what several of them take, or is put, once a
node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import ray

from mmrl.cluster.dispatch import Plan
from mmrl.cluster.host import Layout
from mmrl.cluster.packing import Packed, pack

_SHARED_FROM_BYTES = 65_536
"""A value of this size that several workers take goes through the object store; smaller ones travel with each call."""

Message = tuple[Layout, list[Any]]


@dataclass(frozen=True)
class Reference:
    """A value in Ray's object store. It stands for the value as an argument of a call, by itself."""

    ref: Any

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a reference from put() is an argument of its own; inside another value a worker would not get what it "
            "stands for"
        )


def put(value: Any) -> Reference:
    """Raises TypeError where the value cannot be sent to another process."""
    return Reference(ray.put(pack(value, in_place=True)))


def messages_of(plan: Plan) -> list[Message | None]:
    """What to send to each worker, None where it has no part."""
    values = [value for call in plan.calls if call is not None for value in (*call[0], *call[1].values())]
    counts: dict[int, int] = {}
    for value in values:
        counts[id(value)] = counts.get(id(value), 0) + 1
    packed = {id(value): _item_of(value, is_shared=counts[id(value)] > 1) for value in _distinct(values)}
    return [
        None
        if call is None
        else (
            Layout(len(call[0]), tuple(call[1])),
            [packed[id(value)] for value in (*call[0], *call[1].values())],
        )
        for call in plan.calls
    ]


def _distinct(values: list[Any]) -> list[Any]:
    return list({id(value): value for value in values}.values())


def _item_of(value: Any, *, is_shared: bool) -> Packed | Any:
    if isinstance(value, Reference):
        return value.ref
    packed = pack(value)
    return ray.put(packed) if is_shared and packed.num_bytes >= _SHARED_FROM_BYTES else packed
