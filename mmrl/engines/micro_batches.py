"""The rows of a batch, divided into micro-batches of one token budget.

A micro-batch costs what its forward pass really takes, padding included. On the prefix path that is its distinct
prompts padded to the longest of them, plus its responses padded to the longest of them; on the plain path it is its
rows, each a prompt and a response, padded to the longest row; on the packed path the same rows without padding. Whole
groups are put together in order of length, so that padding is small; only a group that alone passes the budget is
divided, by responses, and not where the batch says that its groups stay whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.models.policy import ForwardPath


def split_by_tokens(batch: GroupBatch, budget: int, *, path: ForwardPath = "prefix") -> list[GroupBatch]:
    """Micro-batches of at most `budget` tokens, every row in exactly one of them; see `plan_micro_batches`."""
    return [batch.select_rows(rows) for rows in plan_micro_batches(batch, budget, path=path)]


def plan_micro_batches(batch: GroupBatch, budget: int, *, path: ForwardPath = "prefix") -> list[Tensor]:
    """The rows of each micro-batch, (rows,) int64 ascending; the costliest micro-batch first.

    Of the orders of packing tried (by prompt, by longest response, by both), the one with the fewest micro-batches
    is taken, then the one with the fewest tokens. A single row over the budget is a micro-batch of its own.
    The same batch and budget always give the same plan.
    """
    units = _units(batch, budget, path)
    plans = [_fill_evenly(sorted(units, key=order), budget, path) for order in _ORDERS]
    best = min(plans, key=lambda plan: (len(plan), sum(_num_tokens(part, path) for part in plan)))
    costliest_first = sorted(best, key=lambda part: -_num_tokens(part, path))
    return [torch.tensor(sorted(row for unit in part for row in unit.rows)) for part in costliest_first]


def num_forwarded_tokens(batch: GroupBatch, *, path: ForwardPath = "prefix") -> int:
    """Tokens that one forward pass over the whole batch takes, padding included."""
    return _num_tokens(_row_units(batch), path)


def num_real_tokens(batch: GroupBatch, *, path: ForwardPath = "prefix") -> int:
    """Tokens of the same pass without padding: prompts (on the plain path one for each row) and responses."""
    lengths = [len(prompt) for prompt in batch.prompts]
    repeated = lengths if path == "prefix" else [lengths[prompt] for prompt in batch.prompt_of_row.tolist()]
    return sum(repeated) + int(batch.response_lengths.sum())


@dataclass(frozen=True)
class _Unit:
    """Rows of one prompt that stay together. Lengths count tokens; unpadded: of all rows, each with its prompt."""

    rows: tuple[int, ...]
    prompt: int
    prompt_length: int
    longest_response: int
    unpadded: int


_ORDERS: tuple[Callable[[_Unit], tuple[int, ...]], ...] = (
    lambda unit: (unit.prompt_length, unit.longest_response, *unit.rows),
    lambda unit: (unit.longest_response, unit.prompt_length, *unit.rows),
    lambda unit: (unit.prompt_length + unit.longest_response, *unit.rows),
)


class _Extent(NamedTuple):
    """The padded extent of units put together; the units of one prompt must follow each other."""

    num_prompts: int = 0
    longest_prompt: int = 0
    num_rows: int = 0
    longest_response: int = 0
    longest_row: int = 0
    last_prompt: int = -1
    unpadded: int = 0

    def plus(self, unit: _Unit) -> _Extent:
        return _Extent(
            num_prompts=self.num_prompts + (unit.prompt != self.last_prompt),
            longest_prompt=max(self.longest_prompt, unit.prompt_length),
            num_rows=self.num_rows + len(unit.rows),
            longest_response=max(self.longest_response, unit.longest_response),
            longest_row=max(self.longest_row, unit.prompt_length + unit.longest_response),
            last_prompt=unit.prompt,
            unpadded=self.unpadded + unit.unpadded,
        )

    def num_tokens(self, path: ForwardPath) -> int:
        if path == "packed":
            return self.unpadded
        if path == "plain":
            return self.num_rows * self.longest_row
        return self.num_prompts * self.longest_prompt + self.num_rows * self.longest_response


def _num_tokens(units: Sequence[_Unit], path: ForwardPath) -> int:
    extent = _Extent()
    for unit in units:
        extent = extent.plus(unit)
    return extent.num_tokens(path)


def _row_units(batch: GroupBatch) -> list[_Unit]:
    lengths = batch.response_lengths.tolist()
    return [
        _Unit((row,), prompt, len(batch.prompts[prompt]), lengths[row], len(batch.prompts[prompt]) + lengths[row])
        for row, prompt in enumerate(batch.prompt_of_row.tolist())
    ]


def _units(batch: GroupBatch, budget: int, path: ForwardPath) -> list[_Unit]:
    """Whole groups, or the parts of a group over the budget. The other paths share nothing, so there rows are free."""
    rows = _row_units(batch)
    if path != "prefix" and not batch.whole_groups:
        return rows
    groups: dict[int, list[_Unit]] = {}
    for unit in rows:
        groups.setdefault(unit.prompt, []).append(unit)
    if batch.whole_groups:
        return [_joined(group) for group in groups.values()]
    return [part for group in groups.values() for part in _parts_of_group(group, budget)]


def _parts_of_group(group: list[_Unit], budget: int) -> list[_Unit]:
    by_length = sorted(group, key=lambda unit: (unit.longest_response, unit.rows))
    return [_joined(part) for part in _fill_evenly(by_length, budget, "prefix")]


def _joined(units: Sequence[_Unit]) -> _Unit:
    """Units of one prompt as one."""
    return _Unit(
        rows=tuple(row for unit in units for row in unit.rows),
        prompt=units[0].prompt,
        prompt_length=units[0].prompt_length,
        longest_response=max(unit.longest_response for unit in units),
        unpadded=sum(unit.unpadded for unit in units),
    )


def _fill_evenly(units: Sequence[_Unit], budget: int, path: ForwardPath) -> list[list[_Unit]]:
    """As few parts as `_fill` makes, under the smallest budget that still gives so few: no tiny last part."""
    parts = _fill(units, budget, path)
    if len(parts) <= 1:
        return parts
    smallest = bisect_left(range(budget), True, key=lambda limit: len(_fill(units, limit, path)) <= len(parts))
    return _fill(units, smallest, path)


def _fill(units: Sequence[_Unit], budget: int, path: ForwardPath) -> list[list[_Unit]]:
    """Consecutive parts, each as full as the budget allows. A unit over the budget is a part of its own."""
    parts: list[list[_Unit]] = []
    extent = _Extent()
    for unit in units:
        extent = extent.plus(unit)
        if not parts or extent.num_tokens(path) > budget:
            parts.append([])
            extent = _Extent().plus(unit)
        parts[-1].append(unit)
    return parts
