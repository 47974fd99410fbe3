"""Where what is judged on the page Label comes from: a panel with some of its evaluations, or a run's samples at one
step. What is drawn of it: `label_drawing`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.services.kept_reads import KeptReads, groups_bytes
from console.services.label_drawing import Candidate, Drawing, Drawn, Item, ItemPool
from mmrl.errors import NotFoundError
from mmrl.evaluation.comparison import side_by_side
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.marks import Answer
from mmrl.jobs.records import Job
from mmrl.runs.checkpoint_refs import checkpoint_at
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import Sample

_GROUPS: KeptReads[Sequence[GroupRecord]] = KeptReads(128_000_000)
_POOLS: KeptReads[ItemPool] = KeptReads(64_000_000)
"""A key that is pressed draws the page anew, and the items with it."""


@dataclass(frozen=True)
class ItemSource:
    """key: under which marks are kept. about: for people. bases: checkpoints that made the answers, by label, the
    best of them last, with the folder of each model that is still there. image: where an image of a prompt lies."""

    key: str
    about: str
    pool: ItemPool
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

    def items(self, drawing: Drawing) -> Sequence[Item]:
        return self.draw(drawing).items

    def draw(self, drawing: Drawing) -> Drawn:
        """By the source alone, so that all who are asked judge the same."""
        return self.pool.draw(drawing, self.key)


def panel_source(evaluations: Sequence[Evaluation]) -> ItemSource:
    """The answers of some evaluations of one panel. Raises NotFoundError, OSError where their files are gone."""
    folders = tuple(str(evaluation.folder) for evaluation in evaluations)
    pool = _POOLS.get(("panel", *folders), lambda: _panel_pool(evaluations), lambda made: made.num_bytes)
    first = evaluations[0]
    models = {each.model.label: Path(each.model.path) for each in sorted(evaluations, key=_accuracy)}
    return ItemSource(
        key=first.panel_hash,
        about=" and ".join(models),
        pool=pool,
        bases={label: path for label, path in models.items() if path.is_dir()},
        image=first.image,
    )


def run_source(job: Job, reader: RunReader, split: str, step: int) -> ItemSource:
    """The responses that a run sampled at one step, as far as their text was kept."""
    label = f"{job.name}@{step}"
    path = reader.sample_files().get((split, step))
    written = (str(path), path.stat().st_mtime_ns, label) if path is not None else (label,)
    pool = _POOLS.get(
        ("run", job.id, split, step, *written),
        lambda: _run_pool(job, reader, split, step, label),
        lambda made: made.num_bytes,
    )
    return ItemSource(f"run:{job.id}", label, pool, _nearest_checkpoint(reader, job.name, step), reader.image)


def _panel_pool(evaluations: Sequence[Evaluation]) -> ItemPool:
    groups = []
    for row in side_by_side([_groups(str(evaluation.folder)) for evaluation in evaluations]):
        candidates = [
            _candidate(response, evaluation.id, evaluation.model.label)
            for evaluation, responses in zip(evaluations, row.responses, strict=True)
            for response in responses
            if response.text is not None
        ]
        groups.append((Sample(row.prompt_id, row.prompt, row.answer, row.meta), tuple(sorted(candidates))))
    return ItemPool(tuple(groups))


def _run_pool(job: Job, reader: RunReader, split: str, step: int, label: str) -> ItemPool:
    groups = []
    for group in reader.sample_groups(step, split, with_tokens=False):
        if group.prompt is None:
            continue
        source = f"{job.id}/{split}/{step}/{group.group_id}"
        candidates = [_candidate(each, source, label) for each in group.responses if each.text is not None]
        groups.append((_prompt(group), tuple(sorted(candidates))))
    return ItemPool(tuple(groups))


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
