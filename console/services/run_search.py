"""The groups of a run that fit a filter, whatever their step: the newest first, a page at a time.

Blocks of a few steps are looked through from the newest on, and of each only the columns that the filter asks about.
A group that may fit is then read whole and asked exactly what one step's filter asks. A page ends when it is full, or
when it has taken its share of processor time; the next one goes on where it ended. So a page costs the same however
large the run is, and what was looked through is told in place of a count that would take a pass over all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from console.services.column_pieces import pieces, steps_at_once
from console.services.group_candidates import candidates, columns_for
from console.services.group_filter import GroupFilter
from console.services.prompt_history import readable, sources
from mmrl.jobs.records import ShardRow
from mmrl.runs.decoding import read_group
from mmrl.runs.records import GroupRecord

ON_A_PAGE = 12
MOST_S = 0.35
"""Of processor time; a block that is begun is looked through."""
_MOST_DIGITS = 18


@dataclass(frozen=True, order=True)
class Place:
    """A group in the order of a search: the newest step first, its groups from the first on. -1 is before the first."""

    step: int
    group_id: int = -1

    @classmethod
    def of_text(cls, text: str) -> Place | None:
        """As `str` writes it; None for anything else."""
        step, dash, group_id = text.partition("-")
        if not _is_number(step) or (dash and not _is_number(group_id)):
            return None
        return cls(int(step), int(group_id) if dash else -1)

    def __str__(self) -> str:
        return f"{self.step}" if self.group_id < 0 else f"{self.step}-{self.group_id}"


@dataclass(frozen=True)
class Found:
    """One page. newest, oldest: the steps that were looked through for it, the last one maybe in part; None where there
    was none left. then: after which the next page goes on; None where all was looked through."""

    groups: tuple[GroupRecord, ...]
    newest: int | None
    oldest: int | None
    then: Place | None


def search_run(
    files: Mapping[int, Path],
    shards: Sequence[ShardRow],
    wanted: GroupFilter,
    *,
    after: Place | None = None,
    most_s: float = MOST_S,
) -> Found:
    """files: step to the shard of its own, for every step that counts. shards: of the index, all of the same split.
    after: where the page before ended. Raises DataError for a file that cannot be read."""
    begun, groups = time.thread_time(), []
    left = sorted((step for step in files if after is None or step <= after.step), reverse=True)
    newest, oldest = (left[0] if left else None), None
    for path, steps in _blocks(left, files, shards, columns_for(wanted)):
        for place in _places(path, steps, wanted, after):
            with readable(files[place.step]):
                group = read_group(files[place.step], place.group_id)
            oldest = place.step
            if group is not None and wanted.fits(group):
                groups.append(group)
            if len(groups) == ON_A_PAGE or time.thread_time() - begun > most_s:
                return Found(tuple(groups), newest, oldest, place)
        oldest = steps[-1]
        if time.thread_time() - begun > most_s:
            break
    then = next((Place(step) for step in left if oldest is not None and step < oldest), None)
    return Found(tuple(groups), newest, oldest, then)


def _is_number(text: str) -> bool:
    """Of no more digits than a step or a group has: Python refuses to read thousands of them."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _blocks(
    steps: Sequence[int], files: Mapping[int, Path], shards: Sequence[ShardRow], columns: Sequence[str]
) -> Iterator[tuple[Path, list[int]]]:
    """A file and steps of it that follow each other, the newest first; a file of many steps comes several times."""
    source = {step: path for path, own in sources({step: files[step] for step in steps}, shards) for step in own}
    for path, run in groupby(steps, key=source.__getitem__):
        own = list(run)
        with readable(path):
            size = steps_at_once(path, files, columns) if path != files[own[0]] else 1
        for start in range(0, len(own), size):
            yield path, own[start : start + size]


def _places(path: Path, steps: Sequence[int], wanted: GroupFilter, after: Place | None) -> list[Place]:
    """Groups of these steps that may fit, in the order of a search."""
    with readable(path):
        found = [
            Place(step, group_id)
            for table in pieces(path, steps, columns_for(wanted))
            for step, group_id in candidates(table, wanted)
        ]
    found = [place for place in found if place.step in steps and (after is None or _is_after(place, after))]
    return sorted(found, key=lambda place: (-place.step, place.group_id))


def _is_after(place: Place, other: Place) -> bool:
    return (-place.step, place.group_id) > (-other.step, other.group_id)
