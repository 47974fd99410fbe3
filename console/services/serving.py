"""Checkpoints that answer: which serving jobs there are, what state each is in, and how to start and stop one.

The address and the key of a server are read here and used by `answers`; no page gets to see either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from console.services.conversations import Column
from mmrl.config.base import home
from mmrl.config.serve import ServeConfig, ServedModelConfig, ServeSettings
from mmrl.errors import ConfigError, NotFoundError
from mmrl.jobs.from_config import job_of
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job, local_path
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import TERMINAL, Desired, JobState
from mmrl.runs.layout import folder_name
from mmrl.serving.endpoint import Endpoint, read_endpoint

MAX_COLUMNS = 4
"""Checkpoints side by side: each takes a slot of a worker, and memory for its weights."""
ServerState = Literal["none", "waiting", "starting", "ready", "stopping", "failed"]
_ALIVE = tuple(state for state in JobState if state not in TERMINAL and state is not JobState.DRAFT)


@dataclass(frozen=True)
class Server:
    """What serves a checkpoint. told: one sentence for people; never an address."""

    state: ServerState
    told: str
    job: Job | None = None


def columns_of(jobs: JobReads, run: Job) -> list[Column]:
    """What of a run can be chatted with, the oldest first: the model that it began with as step 0, if that is a
    folder here, and its whole checkpoints."""
    model = run.config.get("model") or {}
    begun = model.get("path") if run.kind != "serve" else None
    has_begun = bool(begun) and Path(str(begun)).expanduser().is_dir()
    found = [Column(run.id, 0, str(begun), f"{run.name}@0")] if has_begun else []
    rows = [row for row in jobs.checkpoints(run.id) if row.step > 0 or not has_begun]
    return [*found, *(Column(run.id, row.step, row.uri, f"{run.name}@{row.step}") for row in rows)]


def chosen_columns(jobs: JobReads, run: Job, steps: Sequence[int]) -> list[Column]:
    """Raises NotFoundError that names the steps there are, ConfigError for too many."""
    known = {column.step: column for column in columns_of(jobs, run)}
    missing = [step for step in steps if step not in known]
    if missing:
        there = ", ".join(map(str, known)) or "none"
        raise NotFoundError(f"{run.name} has no checkpoint of step {missing[0]}; it has: {there}")
    if len(steps) > MAX_COLUMNS:
        raise ConfigError(f"at most {MAX_COLUMNS} checkpoints at a time (got {len(steps)})")
    return [known[step] for step in dict.fromkeys(steps)]


def server_of(jobs: JobReads, column: Column) -> Server:
    """The newest serving job of the checkpoint, whoever started it."""
    job = _newest(jobs, column)
    if job is None:
        return Server("none", "not started")
    if job.state in TERMINAL:
        return _ended(job)
    if job.desired is not Desired.RUN or job.state in (JobState.STOPPING, JobState.PAUSED):
        return Server("stopping", "being stopped", job)
    if job.state in (JobState.QUEUED, JobState.LOST):
        return Server("waiting", jobs.why_pending(job).message, job)
    if job.state is JobState.RUNNING and endpoint_of(job) is not None:
        return Server("ready", "ready", job)
    return Server("starting", "vLLM loads the checkpoint; on a CPU this takes half a minute or more", job)


def start(jobs: Jobs, column: Column, *, host: str, gpus: int) -> Job:
    """Submits the job that serves a checkpoint, in the pool of its run; one that is alive is given back as it is, also
    where two people start it at once.

    gpus: of the run; a server takes at most one. Raises ForbiddenError.
    """
    name = f"chat-{column.label.replace('@', '-')}"
    config = ServeConfig(
        name=name,
        model=ServedModelConfig(path=column.uri),
        serve=ServeSettings(host=host),
    )
    folder = home().absolute() / "runs" / f"{folder_name(name)}-{uuid4().hex[:12]}"
    run = jobs.get(column.run_id)
    return jobs.submit(
        job_of(
            config,
            pool=run.pool,
            gpus=min(gpus, 1),
            run_dir=str(folder),
            max_attempts=1,
            tags=(tag_of(column),),
        ),
        unless=JobFilter(kinds=("serve",), tags=(tag_of(column),), states=_ALIVE),
    )


def endpoint_of(job: Job) -> Endpoint | None:
    """None where it does not answer, or its run directory is on another machine."""
    folder = local_path(job.run_dir)
    return read_endpoint(folder) if folder is not None and job.state is JobState.RUNNING else None


def tag_of(column: Column) -> str:
    return f"chat-{column.run_id[-8:].lower()}-{column.step}"


def _newest(jobs: JobReads, column: Column) -> Job | None:
    found = jobs.search(JobFilter(kinds=("serve",), tags=(tag_of(column),)), limit=1)
    return found[0] if found else None


def _ended(job: Job) -> Server:
    if job.state is JobState.FAILED:
        return Server("failed", job.error_message or "it failed without a word; look at its log", job)
    why = "stopped by itself, since nobody asked" if job.state is JobState.SUCCEEDED else "stopped"
    return Server("none", why, job)
