"""How a step's work is divided over the ranks of a policy: whole groups where there are enough, with even costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.cluster.dispatch import Dispatch
from mmrl.cluster.sharding import shares
from mmrl.types import Sample

PER_WORKER = Dispatch(
    split=lambda num_workers, parts, *args, **kwargs: [((part, *args), kwargs) for part in parts], join=list
)
"""The first argument is a list with the part of each worker, the rest goes to all. Gives the list of results."""


@dataclass(frozen=True)
class _Unit:
    """Rows of one prompt that go to one rank. cost: tokens that they forward on the prefix path."""

    rows: tuple[int, ...]
    prompt_tokens: int
    cost: int


def row_shares(batch: GroupBatch, num_ranks: int) -> list[Tensor]:
    """The rows of each rank, (rows,) int64 ascending, every row in exactly one share.

    A group stays whole where there are at least as many groups as ranks, or where the batch says so; else the costliest
    are divided, since a rank without rows only waits. A share is empty only where there are fewer rows (or whole
    groups) than ranks.
    """
    lengths = batch.response_lengths.tolist()
    units = _divided(_groups(batch, lengths), num_ranks, lengths, whole_groups=batch.whole_groups)
    parts = shares([unit.cost for unit in units], num_ranks)
    rows = [sorted(row for unit in part for row in units[unit].rows) for part in parts]
    return [torch.tensor(own, dtype=torch.int64) for own in rows]


def sample_shares(samples: Sequence[Sample], num_engines: int) -> list[list[int]]:
    """The places of each engine's samples, ascending, in even numbers. A sample that occurs several times goes to one
    engine, which counts on from one occurrence to the next (`group_seeds`)."""
    places: dict[str, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(sample.id, []).append(place)
    same = list(places.values())
    return [
        sorted(place for unit in part for place in same[unit])
        for part in shares([len(unit) for unit in same], num_engines)
    ]


def joined_rows(parts: Sequence[Tensor], rows: Sequence[Tensor], like: Tensor) -> Tensor:
    """What ranks computed of their rows, each (rows, width), in the places of `like` (B, T); zero elsewhere."""
    joined = torch.zeros_like(like)
    for part, own in zip(parts, rows, strict=True):
        joined[own, : part.shape[1]] = part.to(joined)
    return joined


def _groups(batch: GroupBatch, lengths: Sequence[int]) -> list[_Unit]:
    rows_of: dict[int, list[int]] = {}
    for row, prompt in enumerate(batch.prompt_of_row.tolist()):
        rows_of.setdefault(prompt, []).append(row)
    return [_unit(rows, len(batch.prompts[prompt]), lengths) for prompt, rows in rows_of.items()]


def _divided(units: list[_Unit], num_ranks: int, lengths: Sequence[int], *, whole_groups: bool) -> list[_Unit]:
    """At least one unit a rank, as far as there are rows and groups may be divided."""
    units = list(units)
    while len(units) < num_ranks and not whole_groups:
        divisible = [unit for unit in units if len(unit.rows) > 1]
        if not divisible:
            break
        costliest = max(divisible, key=lambda unit: (unit.cost, unit.rows))
        units.remove(costliest)
        middle = len(costliest.rows) // 2
        halves = (costliest.rows[:middle], costliest.rows[middle:])
        units += [_unit(rows, costliest.prompt_tokens, lengths) for rows in halves]
    return units


def _unit(rows: Sequence[int], prompt_tokens: int, lengths: Sequence[int]) -> _Unit:
    return _Unit(tuple(rows), prompt_tokens, prompt_tokens + sum(lengths[row] for row in rows))
