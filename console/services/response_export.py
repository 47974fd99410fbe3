"""The responses that the page Responses shows, as records to take along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.services.exports import Export, Record
from console.services.formats import number_text
from console.services.group_filter import GroupFilter
from console.services.prompt_history import HistoryPoint
from console.services.responses import Responses, StepGroups
from console.services.run_search import Found
from mmrl.jobs.records import Job
from mmrl.runs.records import GroupRecord, ResponseRecord

SHARED = ("step", "group", "prompt_id", "prompt", "answer", "images")


def export_step(job: Job, responses: Responses, found: StepGroups, wanted: GroupFilter) -> Export:
    """The groups of a step that fit the filter, each response a row, from the best of its group to the worst."""
    where = f"{found.split}, step {found.step}"
    asked = ", ".join(f"{name} {value}" for name, value in wanted.address().items())
    return Export(
        name=f"{job.name}-{found.split}-{found.step}",
        title=f"Responses of {job.name}, {where}",
        records=lambda: _records(responses, found.groups),
        total=sum(len(group.responses) for group in found.groups),
        about={**_about(job), "groups": f"{len(found.groups):,} of {found.num_all:,}", "filter": asked or "none"},
        shared=SHARED,
    )


def export_found(job: Job, responses: Responses, split: str, found: Found, wanted: GroupFilter) -> Export:
    """One page of what was found over all steps."""
    asked = ", ".join(f"{name} {value}" for name, value in wanted.address().items())
    where = f"steps {found.newest} to {found.oldest}" if found.newest is not None else "no step"
    return Export(
        name=f"{job.name}-{split}-found",
        title=f"Responses of {job.name}, {split}, {where}",
        records=lambda: _records(responses, found.groups),
        total=sum(len(group.responses) for group in found.groups),
        about={**_about(job), "looked through": where, "filter": asked or "none"},
        shared=SHARED,
        content=" ".join(f"{group.step}-{group.group_id}" for group in found.groups),
    )


def export_history(job: Job, responses: Responses, split: str, points: Sequence[HistoryPoint]) -> Export:
    """One prompt at every step that had it."""

    def groups() -> Iterator[GroupRecord]:
        for point in points:
            group = responses.group(split, point.step, point.group_id)
            if group is not None:
                yield group

    return Export(
        name=f"{job.name}-{split}-prompt",
        title=f"A prompt of {job.name} over {len(points)} steps",
        records=lambda: _records(responses, groups()),
        total=sum(len(point.rewards) for point in points),
        about=_about(job),
        shared=SHARED,
    )


def response_values(response: ResponseRecord) -> dict[str, Any]:
    """A response as columns: its parts as a column each, and why they have their value."""
    told = "; ".join(f"{part.name}: {part.error or part.explanation}" for part in response.parts if _says(part))
    return {
        "reward": response.reward,
        "response": response.text,
        **{f"part {part.name}": part.value for part in response.parts},
        "advantage": response.advantage,
        "length": response.length,
        "finish_reason": response.finish_reason,
        "why": told or None,
    }


def _records(responses: Responses, groups: Iterator[GroupRecord] | Sequence[GroupRecord]) -> Iterator[Record]:
    for group in groups:
        shared = _shared(group)
        images = tuple(path for image in group.images if (path := responses.image(image.sha256)) is not None)
        mean = "no reward" if group.reward_mean is None else f"mean reward {number_text(group.reward_mean)}"
        section = f"Step {group.step}, group {group.group_id}: {mean}"
        for response in group.by_reward:
            where = {"step": group.step, "group": group.group_id}
            values = {**where, **shared, **response_values(response), "response_index": response.sample_idx}
            yield Record(values, section, images)


def _shared(group: GroupRecord) -> Mapping[str, Any]:
    prompt = None if group.prompt is None else "\n\n".join(f"{turn.role}: {turn.text}" for turn in group.prompt)
    images = " ".join(image.sha256 for image in group.images) or None
    return {"prompt_id": group.prompt_id, "prompt": prompt, "answer": group.answer, "images": images}


def _about(job: Job) -> dict[str, str]:
    return {"run": f"{job.name} {job.short_id}", "job": job.id}


def _says(part: Any) -> bool:
    return bool(part.error or part.explanation)
