"""One prompt across all steps of a run, in figures, from the few columns that it takes.

Where a run was indexed, one file stands for the shards of many steps (`mmrl.jobs.worker.compaction`), and a run of a
million responses is looked through in a fraction of a second. Steps that no such file covers are read from their own.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mmrl.errors import DataError
from mmrl.jobs.records import ShardRow, local_path

_NUMBERS = ("step", "attempt", "group_id", "reward_total", "length", "finish_reason")


@dataclass(frozen=True)
class HistoryPoint:
    """A prompt at one step. rewards: of its responses, in their order, None where one failed.

    length_mean: in tokens. num_truncated: responses that were cut at the limit.
    """

    step: int
    group_id: int
    rewards: tuple[float | None, ...]
    length_mean: float
    num_truncated: int

    @property
    def scored(self) -> list[float]:
        return [reward for reward in self.rewards if reward is not None]

    @property
    def mean(self) -> float | None:
        """Of the rewards that are there."""
        return statistics.fmean(self.scored) if self.scored else None


def prompt_history(files: Mapping[int, Path], shards: Sequence[ShardRow], prompt_id: str) -> list[HistoryPoint]:
    """files: step to the shard of its own, for every step that counts. shards: of the index, all of the same split.

    Raises DataError for a file that cannot be read.
    """
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for path, steps in sources(files, shards):
        for row in _rows_of(path, prompt_id):
            if row["step"] in steps:
                rows[row["step"]].append(row)
    return [_point(step, rows[step]) for step in sorted(rows)]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A file of samples that cannot be read is told by its name."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} is gone; samples are read from the run directory") from error
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as samples: {' '.join(str(error).split())[:200]}") from error


def sources(files: Mapping[int, Path], shards: Sequence[ShardRow]) -> Iterator[tuple[Path, set[int]]]:
    """Each file once, with the steps that are taken from it: the joint one where there is one, else the step's own."""
    left = dict(files)
    for shard in sorted(shards, key=lambda shard: -shard.attempt):
        path = local_path(shard.uri)
        steps = {step for step in left if shard.step_lo <= step <= shard.step_hi and _is_of(left[step], path)}
        if len(steps) > 1 and path is not None and path.is_file():
            yield path, steps
            for step in steps:
                del left[step]
    for step, path in left.items():
        yield path, {step}


def _is_of(own: Path, joint: Path | None) -> bool:
    """Whether both are of the same attempt: attempt-2/samples/… and attempt-2/index/…"""
    return joint is not None and own.parent.parent == joint.parent.parent


def _rows_of(path: Path, prompt_id: str) -> list[dict[str, Any]]:
    """The prompt's rows; of row groups without it nothing but the ids is read."""
    with readable(path), pq.ParquetFile(path, read_dictionary=["prompt_id"]) as file:
        ids = file.read(columns=["prompt_id"])["prompt_id"]
        places = pc.indices_nonzero(pc.equal(ids, prompt_id)).to_pylist()
        if not places:
            return []
        return _taken(file, places)


def _taken(file: pq.ParquetFile, places: Sequence[int]) -> list[dict[str, Any]]:
    """Rows by their places in the file."""
    found, begin = [], 0
    for number in range(file.num_row_groups):
        end = begin + file.metadata.row_group(number).num_rows
        inside = [place - begin for place in places if begin <= place < end]
        if inside:
            found += file.read_row_group(number, columns=list(_NUMBERS)).take(inside).to_pylist()
        begin = end
    return found


def _point(step: int, rows: Sequence[Mapping[str, Any]]) -> HistoryPoint:
    """A prompt that came twice in a step is shown as its first group."""
    first = rows[0]["group_id"]
    own = [row for row in rows if row["group_id"] == first]
    return HistoryPoint(
        step=step,
        group_id=first,
        rewards=tuple(row["reward_total"] for row in own),
        length_mean=statistics.fmean(row["length"] for row in own),
        num_truncated=sum(row["finish_reason"] == "length" for row in own),
    )
