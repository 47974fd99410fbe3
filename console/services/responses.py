"""What the page Responses asks of a run's samples: its steps, the groups of one, and which of them fit a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from console.services.prompt_history import HistoryPoint, prompt_history, readable
from mmrl.errors import DataError, NotFoundError
from mmrl.jobs.records import Job, ShardRow, local_path
from mmrl.runs.decoding import read_group, read_groups
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import Message

ONLY: Mapping[str, str] = {
    "truncated": "cut at the limit",
    "no-spread": "all rewards equal",
    "failed": "a reward failed",
    "disagree": "reward parts disagree",
    "mixed": "some responses best, not all",
}
"""Conditions that a group may be asked for, by the word in the address."""


@dataclass(frozen=True)
class GroupFilter:
    """find: text in a prompt, answer or response, whatever its case. only: one of ONLY. part: the reward part whose
    value is to lie between low and high (both count) in some response; `total` is the whole reward."""

    find: str = ""
    only: str | None = None
    part: str | None = None
    low: float | None = None
    high: float | None = None

    NAMES = ("find", "only", "part", "low", "high")

    @classmethod
    def of_address(cls, words: Mapping[str, str]) -> GroupFilter:
        """What is no number or no condition counts as not given."""
        only = words.get("only")
        return cls(
            words.get("find", ""),
            only if only in ONLY else None,
            words.get("part") or None,
            _number(words.get("low")),
            _number(words.get("high")),
        )

    def address(self) -> dict[str, str]:
        given = {name: getattr(self, name) for name in self.NAMES}
        return {name: str(value) for name, value in given.items() if value not in (None, "")}

    def fits(self, group: GroupRecord) -> bool:
        return self._has_text(group) and self._is_of_kind(group) and self._is_in_range(group)

    def _has_text(self, group: GroupRecord) -> bool:
        wanted = self.find.casefold()
        return not wanted or any(wanted in text.casefold() for text in _texts(group))

    def _is_of_kind(self, group: GroupRecord) -> bool:
        tests = {
            "truncated": lambda: any(response.is_truncated for response in group.responses),
            "no-spread": lambda: len({response.reward for response in group.responses}) == 1,
            "failed": lambda: any(response.reward is None for response in group.responses),
            "disagree": lambda: bool(disagreements(group)),
            "mixed": lambda: 0 < _num_best(group) < len(group.responses),
        }
        return self.only is None or bool(tests[self.only]())

    def _is_in_range(self, group: GroupRecord) -> bool:
        if self.part is None or (self.low is None and self.high is None):
            return True
        values = [value_of(response, self.part) for response in group.responses]
        return any(
            value is not None and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
            for value in values
        )


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

    def history(self, split: str, prompt_id: str) -> list[HistoryPoint]:
        """One prompt at each of the steps that had it, in figures."""
        own = {step: path for (name, step), path in self._files.items() if name == split}
        return prompt_history(own, [shard for shard in self._shards if shard.split == split], prompt_id)

    def image(self, sha256: str) -> Path | None:
        return self._reader.image(sha256)

    def _path(self, split: str, step: int) -> Path:
        path = self._files.get((split, step))
        if path is None:
            raise NotFoundError(f"no {split} samples of step {step} were kept")
        return path


def value_of(response: ResponseRecord, part: str) -> float | None:
    """Of one reward part, or of the `total`; None where it failed or was not asked for."""
    if part == "total":
        return response.reward
    return next((each.value for each in response.parts if each.name == part), None)


def disagreements(group: GroupRecord) -> list[tuple[str, str]]:
    """Pairs of reward parts that order two responses of the group oppositely."""
    names = list(dict.fromkeys(part.name for response in group.responses for part in response.parts))
    pairs = list(combinations(group.responses, 2))
    return [names_of for names_of in combinations(names, 2) if any(_opposed(one, two, names_of) for one, two in pairs)]


def prompt_text(messages: Sequence[Message] | None) -> str:
    """The last turn, for lists of prompts; empty where only the numbers were kept."""
    return messages[-1].text if messages else ""


def _opposed(one: ResponseRecord, two: ResponseRecord, names: tuple[str, str]) -> bool:
    signs = []
    for name in names:
        first, second = value_of(one, name), value_of(two, name)
        if first is None or second is None or first == second:
            return False
        signs.append(first > second)
    return signs[0] is not signs[1]


def _num_best(group: GroupRecord) -> int:
    """How many responses have the group's highest reward, unless all rewards are equal: then none counts."""
    rewards = [response.reward for response in group.responses if response.reward is not None]
    return rewards.count(max(rewards)) if len(set(rewards)) > 1 else 0


def _texts(group: GroupRecord) -> list[str]:
    prompt = [message.text for message in group.prompt or ()]
    responses = [response.text or "" for response in group.responses]
    return [*prompt, group.answer or "", *responses]


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
