"""What the page Responses asks of a run's samples: its steps, the groups of one, and which of them fit a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console.services.group_filter import GroupFilter
from console.services.prompt_history import HistoryPoint, prompt_history, readable
from console.services.run_search import Found, Place, search_run
from mmrl.errors import DataError, NotFoundError
from mmrl.jobs.records import Job, ShardRow, local_path
from mmrl.runs.decoding import read_group, read_groups
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord
from mmrl.types import Message


@dataclass(frozen=True)
class StepGroups:
    """The groups of one step that fit, out of `num_all`. parts: names of the reward parts, in the config's order."""

    split: str
    step: int
    num_all: int
    groups: tuple[GroupRecord, ...]
    parts: tuple[str, ...]


class Responses:
    """The samples of a run, as far as they were written when this was made.

    shards: what the index names of it, where larger files stand for many small ones; see `prompt_history`.
    Raises DataError where its run directory is not on this machine.
    """

    def __init__(self, job: Job, shards: Sequence[ShardRow] = ()) -> None:
        path = local_path(job.run_dir)
        if path is None:
            raise DataError(f"the samples are at {job.run_dir}, which is not on this machine")
        self._reader = RunReader(path)
        self._files = self._reader.sample_files()
        self._shards = tuple(shards)

    def steps(self) -> dict[str, list[int]]:
        """Steps whose samples were kept, by split; `train` first."""
        splits = sorted({split for split, _ in self._files}, key=lambda split: (split != "train", split))
        return {split: sorted(step for name, step in self._files if name == split) for split in splits}

    def groups(self, split: str, step: int, wanted: GroupFilter) -> StepGroups:
        """Without what is per token. Raises NotFoundError for a step that was not kept, DataError for a bad file."""
        path = self._path(split, step)
        with readable(path):
            found = read_groups(path, with_tokens=False)
        names = dict.fromkeys(part.name for group in found for each in group.responses for part in each.parts)
        return StepGroups(split, step, len(found), tuple(group for group in found if wanted.fits(group)), tuple(names))

    def group(self, split: str, step: int, group_id: int) -> GroupRecord | None:
        """With what is per token; None where the step has no such group."""
        path = self._path(split, step)
        with readable(path):
            return read_group(path, group_id)

    def search(self, split: str, wanted: GroupFilter, after: Place | None) -> Found:
        """The groups of all steps that fit, the newest first, a page at a time; after: where the one before ended."""
        return search_run(self._own(split), self._of_index(split), wanted, after=after)

    def history(self, split: str, prompt_id: str) -> list[HistoryPoint]:
        """One prompt at each of the steps that had it, in figures."""
        return prompt_history(self._own(split), self._of_index(split), prompt_id)

    def image(self, sha256: str) -> Path | None:
        return self._reader.image(sha256)

    def _own(self, split: str) -> dict[int, Path]:
        return {step: path for (name, step), path in self._files.items() if name == split}

    def _of_index(self, split: str) -> list[ShardRow]:
        return [shard for shard in self._shards if shard.split == split]

    def _path(self, split: str, step: int) -> Path:
        path = self._files.get((split, step))
        if path is None:
            raise NotFoundError(f"no {split} samples of step {step} were kept")
        return path


def prompt_text(messages: Sequence[Message] | None) -> str:
    """The last turn, for lists of prompts; empty where only the numbers were kept."""
    return messages[-1].text if messages else ""
