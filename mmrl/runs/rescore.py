"""Stored responses under another reward: what moved, and what a policy would have learned otherwise.

Responses of a run's samples are scored anew; what the run wrote down is set beside what comes of it. Only groups that
were kept with their text can be scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from mmrl.rewards.base import RewardItem
from mmrl.rewards.runner import RewardRunner
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import RewardPart, RewardResult, Sample

_AT_A_TIME = 500
_SAME = 1e-9
_NO_SPREAD = 1e-6


@dataclass(frozen=True)
class Rescored:
    """One response before and after.

    advantage_before, advantage_after: the total less the mean of its group's; 0 in a group without spread, None where
        there is no total.
    """

    step: int
    group_id: int
    sample_idx: int
    text: str
    before: RewardResult
    after: RewardResult
    advantage_before: float | None
    advantage_after: float | None

    @property
    def move(self) -> float | None:
        """How far the total moved; None where one of both is missing."""
        if self.before.total is None or self.after.total is None:
            return None
        return self.after.total - self.before.total

    @property
    def is_changed(self) -> bool:
        """Whether the total moved, appeared or went missing."""
        if self.move is not None:
            return abs(self.move) > _SAME
        return (self.before.total is None) != (self.after.total is None)

    @property
    def flips(self) -> bool:
        """Whether the policy would be pushed the other way: the advantage changes its sign."""
        return (self.advantage_before or 0.0) * (self.advantage_after or 0.0) < 0


@dataclass(frozen=True)
class Moved:
    """What happened to the total, or to one part, over all responses.

    mean_before, mean_after: over the values that exist, None where there are none.
    up, down: responses whose value rose or fell. missing_before, missing_after: responses without a value.
    """

    name: str
    mean_before: float | None
    mean_after: float | None
    up: int
    down: int
    missing_before: int
    missing_after: int


@dataclass(frozen=True)
class Comparison:
    """The figures of a rescoring.

    skipped_groups: groups whose text was not kept.
    pairs: pairs of responses of one group with different totals before and after; pairs_swapped: those whose order is
        the other way round now. best_changed: groups in which another response is the best now.
    flips_to_positive, flips_to_negative: responses whose advantage changes its sign. gained_spread, lost_spread: groups
        that teach something now, or nothing any more.
    """

    groups: int
    responses: int
    skipped_groups: int
    total: Moved
    parts: tuple[Moved, ...]
    pairs: int
    pairs_swapped: int
    best_changed: int
    flips_to_positive: int
    flips_to_negative: int
    gained_spread: int
    lost_spread: int


def rescore(
    runner: RewardRunner, groups: Sequence[GroupRecord], *, say: Callable[[int, int], None] = lambda done, num: None
) -> list[list[Rescored]]:
    """The responses of every group that was kept with its text, scored anew, in order. say: (done, all)."""
    kept = [group for group in groups if is_whole(group)]
    items = [_item(group, response) for group in kept for response in group.responses]
    found: list[RewardResult] = []
    for start in range(0, len(items), _AT_A_TIME):
        found += runner.score_items(items[start : start + _AT_A_TIME])
        say(len(found), len(items))
    results = iter(found)
    scored = runner.normalise([[next(results) for _ in group.responses] for group in kept])
    return [_rescored(group, after) for group, after in zip(kept, scored, strict=True)]


def is_whole(group: GroupRecord) -> bool:
    return group.prompt is not None and all(response.text is not None for response in group.responses)


def compare(groups: Sequence[Sequence[Rescored]], *, skipped_groups: int) -> Comparison:
    rows = [row for group in groups for row in group]
    swapped, pairs = _swapped_pairs(groups)
    spreads = [
        (has_spread(row.before.total for row in group), has_spread(row.after.total for row in group))
        for group in groups
    ]
    return Comparison(
        groups=len(groups),
        responses=len(rows),
        skipped_groups=skipped_groups,
        total=_moved("total", [(row.before.total, row.after.total) for row in rows]),
        parts=tuple(_moved_part(name, rows) for name in _part_names(rows)),
        pairs=pairs,
        pairs_swapped=swapped,
        best_changed=sum(best_of(group, after=False).isdisjoint(best_of(group, after=True)) for group in groups),
        flips_to_positive=sum(row.flips and (row.advantage_after or 0.0) > 0 for row in rows),
        flips_to_negative=sum(row.flips and (row.advantage_after or 0.0) < 0 for row in rows),
        gained_spread=sum(after and not before for before, after in spreads),
        lost_spread=sum(before and not after for before, after in spreads),
    )


def most_moved(groups: Sequence[Sequence[Rescored]], limit: int) -> list[Rescored]:
    """Responses whose advantage flips, then those whose total is changed, each by how far it moved."""
    rows = [row for group in groups for row in group if row.is_changed or row.flips]
    return sorted(rows, key=lambda row: (not row.flips, -abs(row.move or 0.0)))[:limit]


def _item(group: GroupRecord, response: ResponseRecord) -> RewardItem:
    sample = Sample(group.prompt_id, group.prompt or (), group.answer, group.meta or {})
    mask = response.response_mask
    num_tokens = response.length if mask is None else sum(mask)
    return RewardItem(sample, response.text or "", response.sample_idx, num_tokens, response.finish_reason)


def _rescored(group: GroupRecord, after: Sequence[RewardResult]) -> list[Rescored]:
    before = [RewardResult(response.reward, response.parts) for response in group.responses]
    advantages = [_advantages([result.total for result in results]) for results in (before, after)]
    rows = zip(group.responses, before, after, *advantages, strict=True)
    return [
        Rescored(group.step, group.group_id, response.sample_idx, response.text or "", *others)
        for response, *others in rows
    ]


def _advantages(totals: Sequence[float | None]) -> list[float | None]:
    there = [total for total in totals if total is not None]
    mean = fmean(there) if there else 0.0
    spread = has_spread(totals)
    return [None if total is None else (total - mean if spread else 0.0) for total in totals]


def has_spread(totals: Iterable[float | None]) -> bool:
    """Whether the group teaches something: its totals differ by more than rounding."""
    there = [total for total in totals if total is not None]
    return len(there) > 1 and max(there) - min(there) > _NO_SPREAD * max(1.0, max(map(abs, there)))


def _swapped_pairs(groups: Sequence[Sequence[Rescored]]) -> tuple[int, int]:
    swapped = pairs = 0
    for group in groups:
        for one, other in combinations(group, 2):
            before = difference(one.before.total, other.before.total)
            after = difference(one.after.total, other.after.total)
            pairs += bool(before and after)
            swapped += before * after < 0
    return swapped, pairs


def difference(one: float | None, other: float | None) -> float:
    """0 where they are the same to rounding, or one is missing."""
    if one is None or other is None or abs(one - other) <= _SAME:
        return 0.0
    return one - other


def best_of(group: Sequence[Rescored], *, after: bool) -> set[int]:
    """The responses with the highest total; all where there is none."""
    totals = {row.sample_idx: (row.after if after else row.before).total for row in group}
    there = [total for total in totals.values() if total is not None]
    return {index for index, total in totals.items() if total is not None and total >= max(there) - _SAME} or set(
        totals
    )


def _part_names(rows: Sequence[Rescored]) -> list[str]:
    return list(dict.fromkeys(part.name for row in rows for side in (row.before, row.after) for part in side.parts))


def _moved_part(name: str, rows: Sequence[Rescored]) -> Moved:
    return _moved(name, [(_value(row.before.parts, name), _value(row.after.parts, name)) for row in rows])


def _value(parts: Sequence[RewardPart], name: str) -> float | None:
    return next((part.value for part in parts if part.name == name), None)


def _moved(name: str, values: Sequence[tuple[float | None, float | None]]) -> Moved:
    before = [value for value, _ in values if value is not None]
    after = [value for _, value in values if value is not None]
    moves = [new - old for old, new in values if old is not None and new is not None]
    return Moved(
        name=name,
        mean_before=fmean(before) if before else None,
        mean_after=fmean(after) if after else None,
        up=sum(move > _SAME for move in moves),
        down=sum(move < -_SAME for move in moves),
        missing_before=len(values) - len(before),
        missing_after=len(values) - len(after),
    )
