"""What is judged on the page Label: prompts with answers, drawn so that everybody with the same address gets the same.

A source is a panel with some of its evaluations, or the samples of a run at one step. Pairs are two answers, rankings
up to MAX_RANKED. Answers that read the same are one.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Literal

from console.services.kept_reads import KeptReads, groups_bytes
from mmrl.errors import NotFoundError
from mmrl.evaluation.comparison import side_by_side
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.marks import Answer, item_key
from mmrl.jobs.records import Job
from mmrl.runs.checkpoint_refs import checkpoint_at
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import Sample

Way = Literal["pairs", "ranking"]
MAX_RANKED = 6
"""Answers that stand beside each other to be ranked: as many as a person keeps in mind and a page can hold."""
_GROUPS: KeptReads[Sequence[GroupRecord]] = KeptReads(128_000_000)


@dataclass(frozen=True, order=True)
class Candidate:
    """One answer that is judged. by: who made it, such as `RUN@STEP`; reward: None where there is none."""

    answer: Answer
    text: str
    reward: float | None
    by: str


@dataclass(frozen=True)
class Item:
    """A prompt and answers to it, in an order of their own that tells nothing."""

    prompt: Sample
    candidates: tuple[Candidate, ...]

    @cached_property
    def key(self) -> str:
        return item_key(self.prompt.id, self.answers)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return tuple(candidate.answer for candidate in self.candidates)

    def shown_for(self, user_id: str) -> tuple[int, ...]:
        """Places of the answers from left to right for this person: drawn for each item and person, and the same at
        each look, so that a reload tells nothing."""
        places = list(range(len(self.candidates)))
        random.Random(f"side {user_id} {self.key}").shuffle(places)
        return tuple(places)


@dataclass(frozen=True)
class Drawing:
    """Which of all items are judged. num: at most so many; None for all. only_differing: where not all rewards are
    equal, so that there is something to tell apart."""

    way: Way = "pairs"
    num: int | None = 20
    only_differing: bool = False


@dataclass(frozen=True)
class ItemSource:
    """key: under which marks are kept. about: for people. bases: checkpoints that made the answers, by label, the
    best of them last, with the folder of each model that is still there. image: where an image of a prompt lies."""

    key: str
    about: str
    groups: tuple[tuple[Sample, tuple[Candidate, ...]], ...]
    bases: dict[str, Path]
    image: Callable[[str], Path | None]

    @property
    def dataset_name(self) -> str:
        """For a data set of its marks: one of its own, so that none takes the place of another source's."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", self.about.replace(" and ", "-")).strip("-")
        return f"marks-{words[:40].strip('-')}-{self._hash}"

    @property
    def told(self) -> str:
        """What a data set of its marks is said to be made from; told from any other source's."""
        return f"marks of people on {self.about} ({self._hash})"

    @property
    def _hash(self) -> str:
        return hashlib.sha256(f"{self.key} {self.about}".encode()).hexdigest()[:6]

    def items(self, drawing: Drawing) -> list[Item]:
        """Drawn by the source alone, so that all who are asked judge the same."""
        found = [item for prompt, candidates in self.groups for item in _items(prompt, candidates, drawing)]
        if drawing.only_differing:
            found = [item for item in found if len({each.reward for each in item.candidates}) > 1]
        random.Random(f"items {self.key}").shuffle(found)
        return found[: drawing.num]


def panel_source(evaluations: Sequence[Evaluation]) -> ItemSource:
    """The answers of some evaluations of one panel. Raises NotFoundError, OSError where their files are gone."""
    groups = []
    for row in side_by_side([_groups(str(evaluation.folder)) for evaluation in evaluations]):
        candidates = [
            _candidate(response, evaluation.id, evaluation.model.label)
            for evaluation, responses in zip(evaluations, row.responses, strict=True)
            for response in responses
            if response.text is not None
        ]
        groups.append((Sample(row.prompt_id, row.prompt, row.answer, row.meta), tuple(sorted(candidates))))
    first = evaluations[0]
    models = {each.model.label: Path(each.model.path) for each in sorted(evaluations, key=_accuracy)}
    return ItemSource(
        key=first.panel_hash,
        about=" and ".join(models),
        groups=tuple(groups),
        bases={label: path for label, path in models.items() if path.is_dir()},
        image=first.image,
    )


def run_source(job: Job, reader: RunReader, split: str, step: int) -> ItemSource:
    """The responses that a run sampled at one step, as far as their text was kept."""
    label = f"{job.name}@{step}"
    groups = []
    for group in reader.sample_groups(step, split, with_tokens=False):
        if group.prompt is None:
            continue
        source = f"{job.id}/{split}/{step}/{group.group_id}"
        candidates = [_candidate(each, source, label) for each in group.responses if each.text is not None]
        groups.append((_prompt(group), tuple(sorted(candidates))))
    return ItemSource(f"run:{job.id}", label, tuple(groups), _nearest_checkpoint(reader, job.name, step), reader.image)


def _items(prompt: Sample, candidates: Iterable[Candidate], drawing: Drawing) -> list[Item]:
    """Pairs: the first answer of one with the first of each other, their second ones, and so on; of one maker alone,
    two of its answers. A ranking: up to MAX_RANKED answers, one of each reward first."""
    draw = random.Random(f"drawn {prompt.id}")
    if drawing.way == "ranking":
        distinct = _distinct(candidates)
        draw.shuffle(distinct)
        chosen = _varied(distinct)[:MAX_RANKED]
        return [Item(prompt, tuple(sorted(chosen)))] if len(chosen) > 1 else []
    makers: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        makers.setdefault(candidate.answer.source, []).append(candidate)
    if len(makers) == 1:
        distinct = _distinct(candidates)
        draw.shuffle(distinct)
        chosen = _varied(distinct)[:2]
        return [Item(prompt, tuple(sorted(chosen)))] if len(chosen) > 1 else []
    return [
        Item(prompt, tuple(sorted(pair)))
        for one, other in combinations(makers.values(), 2)
        for pair in zip(one, other, strict=False)
        if pair[0].text != pair[1].text
    ]


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.text, candidate)
    return list(found.values())


def _varied(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One of each reward first, then the others."""
    firsts: dict[float | None, Candidate] = {}
    for candidate in candidates:
        firsts.setdefault(candidate.reward, candidate)
    chosen = list(firsts.values())
    return [*chosen, *(candidate for candidate in candidates if candidate not in chosen)]


def _accuracy(evaluation: Evaluation) -> float:
    found = evaluation.summary.metrics.get("accuracy") or evaluation.summary.metrics.get("reward")
    return found.value if found is not None else float("-inf")


def _candidate(response: ResponseRecord, source: str, by: str) -> Candidate:
    return Candidate(Answer(source, response.sample_idx), response.text or "", response.reward, by)


def _prompt(group: GroupRecord) -> Sample:
    return Sample(group.prompt_id, group.prompt or (), group.answer, group.meta or {})


def _nearest_checkpoint(reader: RunReader, name: str, step: int) -> dict[str, Path]:
    """The policy that sampled, or what is nearest to it."""
    steps = [point.step for point in reader.checkpoints()]
    if not steps:
        return {}
    nearest = min(steps, key=lambda each: (abs(each - step), each))
    return {f"{name}@{nearest}": checkpoint_at(reader.run_dir, str(nearest)).model}


def _groups(folder: str) -> Sequence[GroupRecord]:
    """Of an evaluation: its folder is named after its content, so it never changes."""
    return _GROUPS.get(folder, lambda: _read(Path(folder)), groups_bytes)


def _read(folder: Path) -> Sequence[GroupRecord]:
    from mmrl.evaluation.records import read_evaluation

    if not folder.is_dir():
        raise NotFoundError(f"{folder} is gone, and with it the answers")
    return read_evaluation(folder).groups()
