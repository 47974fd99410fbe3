"""`job:ID/model@best` in a job's config: what an earlier job leaves behind, looked up when the later one starts.

    job:ID/model, job:ID/model@last     the model of its last checkpoint
    job:ID/model@best, job:ID/model@40  of its best one, or of that step
    job:ID/run_dir                      its run directory

Of a run in a store the machine that starts the later job fetches what it lacks: that checkpoint, or the whole run.
A job that failed and was resumed or tried again stands for the newest of its children that succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mmrl.config.secrets import redact
from mmrl.errors import ConfigError, NotFoundError
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job
from mmrl.jobs.states import JobState
from mmrl.runs.checkpoint_refs import checkpoint_at
from mmrl.runs.mirror import is_address
from mmrl.runs.stored_run import StoredRun

_REFERENCE = re.compile(r"job:(?P<job>[0-9a-f-]{36})/(?:(?P<run_dir>run_dir)|model(?:@(?P<step>best|last|\d+))?)")
_BEGINNING = "job:"


def resolve_references(config: Mapping[str, Any], jobs: JobReads) -> dict[str, Any]:
    """The config with paths in place of its references.

    Raises ConfigError for a text that begins like a reference and is none, NotFoundError where the job has not
    succeeded or its run directory holds no such checkpoint, RunFailedError for a store that does not answer.
    """
    resolved: dict[str, Any] = _replaced(config, lambda text: _path_of(text, jobs))
    return resolved


def has_references(config: Mapping[str, Any]) -> bool:
    """Whether anything in it is looked up when the job starts."""
    found: list[str] = []
    _replaced(config, lambda text: found.append(text) or text)  # type: ignore[func-returns-value]
    return bool(found)


def unready_references(config: Mapping[str, Any], jobs: JobReads) -> list[str]:
    """Why its references cannot be paths here and now: of each that waits for a job which has not ended, and of each
    whose files would have to be fetched first. Nothing is fetched. Raises ConfigError as `resolve_references`."""
    reasons: list[str] = []

    def look(text: str) -> str:
        found = descendants(jobs, _match(text)["job"])
        done = [job for job in found if job.state is JobState.SUCCEEDED]
        waits = [job for job in found if not job.is_terminal]
        if done and is_address(done[-1].run_dir):
            reasons.append(f"{text}: the run is in a store, and what is needed of it is fetched where the job starts")
        elif not done and waits:
            job = waits[-1]
            reasons.append(
                f"{text}: job {job.short_id} ({job.name}) is {job.state}; it is looked up when the job starts"
            )
        return text

    _replaced(config, look)
    return reasons


def stored_references(config: Mapping[str, Any], jobs: JobReads) -> list[str]:
    """What its references name that lies in stores, in words, with the address and without what is secret in it.

    Nothing is fetched. Raises as `resolve_references`, but for the store.
    """
    found: list[str] = []

    def look(text: str) -> str:
        match = _match(text)
        job = newest_success(jobs, match["job"])
        if is_address(job.run_dir):
            which = match["step"] or "last"
            what = f"checkpoint {which}" if which.isdecimal() else f"the {which} checkpoint"
            what = what if match["run_dir"] is None else "the whole run"
            found.append(f"{what} of job {job.short_id} ({job.name}) from {redact(job.run_dir)}")
        return text

    _replaced(config, look)
    return list(dict.fromkeys(found))


def newest_success(jobs: JobReads, job_id: str) -> Job:
    """The job itself, or the newest of those that stem from it, that succeeded. Raises NotFoundError."""
    found = [job for job in descendants(jobs, job_id) if job.state is JobState.SUCCEEDED]
    if not found:
        job = jobs.get(job_id)
        raise NotFoundError(
            f"job {job.short_id} ({job.name}) is {job.state}, so that there is nothing of it to go on from; "
            f"`mmrl job resume {job.short_id}`"
        )
    return found[-1]


def descendants(jobs: JobReads, job_id: str) -> list[Job]:
    """The job and all that stem from it, the oldest first."""
    found, new = [jobs.get(job_id)], [job_id]
    while new:
        children = [child for parent in new for child in jobs.children(parent)]
        found += children
        new = [child.id for child in children]
    return sorted(found, key=lambda job: job.id)


def _match(text: str) -> re.Match[str]:
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} names no result of a job; write job:ID/model, job:ID/model@best or job:ID/run_dir")
    return match


def _path_of(text: str, jobs: JobReads) -> str:
    match = _match(text)
    run_dir = newest_success(jobs, match["job"]).run_dir
    if match["run_dir"] is None:
        return str(checkpoint_at(run_dir, match["step"] or "last").model)
    return str(StoredRun(run_dir).fetch() if is_address(run_dir) else run_dir)


def _replaced(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, change) for item in value]
    return change(value) if isinstance(value, str) and value.startswith(_BEGINNING) else value
