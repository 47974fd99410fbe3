"""A rescoring as people look at it: how totals are distributed, whether their order holds, which groups moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from mmrl.runs.rescore import Rescored, best_of, difference, has_spread

BINS = 20


@dataclass(frozen=True)
class Distribution:
    """How often totals lie in each bin, before and after. edges: one more than bins; the last bin holds its end."""

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class MovedGroup:
    """A group in which something changed. swapped: pairs of its responses in another order, of `pairs`.

    spread: whether it teaches something now, or nothing any more; None where that is as before.
    """

    step: int
    group_id: int
    swapped: int
    pairs: int
    is_best_changed: bool
    spread: Literal["gained", "lost"] | None


def distribution(groups: Sequence[Sequence[Rescored]], *, bins: int = BINS) -> Distribution | None:
    """Over equal bins from the least to the greatest of all totals; None where there are none."""
    before = [row.before.total for group in groups for row in group if row.before.total is not None]
    after = [row.after.total for group in groups for row in group if row.after.total is not None]
    if not before and not after:
        return None
    low, high = min(before + after), max(before + after)
    width = (high - low) / bins or 1.0 / bins
    edges = tuple(low + number * width for number in range(bins + 1))
    return Distribution(edges, _counts(before, low, width, bins), _counts(after, low, width, bins))


def rank_correlation(groups: Sequence[Sequence[Rescored]]) -> float | None:
    """Spearman's rho of the totals before and after, over all responses that have both; equal totals share their mean
    rank. None for fewer than two, or where one side is all the same."""
    pairs = [
        (row.before.total, row.after.total)
        for group in groups
        for row in group
        if row.before.total is not None and row.after.total is not None
    ]
    ranks = [_ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    return _pearson(*ranks)


def moved_groups(groups: Sequence[Sequence[Rescored]]) -> list[MovedGroup]:
    """Those with most pairs in another order first."""
    found = [_moved(group) for group in groups if group]
    changed = [each for each in found if each.swapped or each.is_best_changed or each.spread]
    return sorted(changed, key=lambda each: (-each.swapped, not each.is_best_changed, each.step, each.group_id))


def _moved(group: Sequence[Rescored]) -> MovedGroup:
    swapped = pairs = 0
    for one, other in combinations(group, 2):
        before = difference(one.before.total, other.before.total)
        after = difference(one.after.total, other.after.total)
        pairs += bool(before and after)
        swapped += before * after < 0
    had, has = has_spread(row.before.total for row in group), has_spread(row.after.total for row in group)
    is_best_changed = best_of(group, after=False).isdisjoint(best_of(group, after=True))
    spread: Literal["gained", "lost"] | None = None if had == has else ("gained" if has else "lost")
    return MovedGroup(group[0].step, group[0].group_id, swapped, pairs, is_best_changed, spread)


def _counts(values: Sequence[float], low: float, width: float, bins: int) -> tuple[int, ...]:
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return tuple(counts)


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            ranks[place] = (start + end) / 2
        start = end + 1
    return ranks


def _pearson(ones: Sequence[float], others: Sequence[float]) -> float | None:
    if len(ones) < 2:
        return None
    mean, other_mean = sum(ones) / len(ones), sum(others) / len(others)
    shared = sum((one - mean) * (other - other_mean) for one, other in zip(ones, others, strict=True))
    spreads = sum((one - mean) ** 2 for one in ones) * sum((other - other_mean) ** 2 for other in others)
    return shared / spreads**0.5 if spreads else None
