"""Asking checkpoints the same prompts: what may be asked, the jobs that do it, and how far they are.

The prompts are a panel: one that was kept, or the run's held-out data frozen as one by the first of the jobs, which the
others wait for. Step 0 is the model that the run began with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from console.services.run_checkpoints import evaluate_config, tag_of
from mmrl.checkpoint_files import MODEL_FOLDER
from mmrl.config.loading import build_config
from mmrl.errors import ConfigError, MmrlError
from mmrl.evaluation.panels import panel_names
from mmrl.evaluation.progress import read_answered
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.configs import config_of
from mmrl.jobs.data_versions import data_versions
from mmrl.jobs.from_config import job_of
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job, local_path
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import TERMINAL, JobState
from mmrl.runs.checkpoint_refs import best_rule, resolve_model
from mmrl.runs.reader import RunReader

Way = Literal["greedy", "sampled"]
WAYS: dict[Way, str] = {"greedy": "greedy, one answer each", "sampled": "sampled, four answers each"}
SETTINGS: dict[Way, dict[str, Any]] = {
    "greedy": {"samples_per_prompt": 1, "temperature": 0.0, "greedy": False, "k": None},
    "sampled": {"samples_per_prompt": 4, "temperature": 1.0, "greedy": False, "k": None},
}
KINDS = ("rl", "sft", "preference")
MAX_RUNS = 100
_WITHOUT_ANSWER = (JobState.FAILED, JobState.CANCELLED)
MAX_PROMPTS = 200
"""Of a new panel; a run's own evaluation may have fewer."""


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that may be asked. step: 0 is the model before training. path: of its model."""

    run: Job
    step: int
    path: str
    is_best: bool = False

    @property
    def label(self) -> str:
        told = "step 0, before training" if self.step == 0 else f"step {self.step}"
        return f"{told}, best" if self.is_best else told


@dataclass(frozen=True)
class Prompts:
    """A panel by its name. way: how a new one is answered; None for one that was kept."""

    name: str
    way: Way | None = None


@dataclass(frozen=True)
class Asked:
    """A job that answers. answered: prompts so far and all of them, None before it has begun or where it is not told.

    message: what it said last.
    """

    job: Job
    answered: tuple[int, int] | None
    message: str

    @property
    def share(self) -> float:
        if self.job.state is JobState.SUCCEEDED:
            return 1.0
        return self.answered[0] / self.answered[1] if self.answered else 0.0


def runs_to_ask(jobs: JobReads, *, also: str | None = None) -> list[Job]:
    """The newest runs that train, and the one named."""
    found = jobs.search(JobFilter(kinds=KINDS), limit=MAX_RUNS)
    return found if also is None or any(job.id == also for job in found) else [*found, jobs.get(also)]


def candidates(jobs: JobReads, run: Job) -> list[Candidate]:
    """Step 0, then the checkpoints whose files are on this machine, by their numbers."""
    metric, direction = best_rule(dict(run.config))
    rows = [row for row in jobs.checkpoints(run.id) if (path := local_path(row.uri)) is not None and path.is_dir()]
    sign = 1 if direction == "max" else -1
    having = [row for row in rows if metric is not None and metric in row.metrics]
    best = max(having, key=lambda row: (sign * row.metrics[str(metric)], -row.step), default=None)
    base = (run.config.get("model") or {}).get("path")
    found = [Candidate(run, 0, base)] if isinstance(base, str) else []
    return [*found, *(Candidate(run, row.step, row.uri, row is best) for row in sorted(rows, key=lambda row: row.step))]


def new_prompts(run: Job, way: Way) -> Prompts:
    """The run's held-out data as a panel whose name tells data, way and settings apart.

    Raises ConfigError for a run without held-out data, or without rewards.
    """
    config = _new_config(run, way, name="panel", save_as="panel")
    told = {name: config[name] for name in ("data", "eval", "seed")}
    told["limits"] = config["rollout"].get("max_response_tokens"), config["rollout"].get("stop")
    told["versions"] = data_versions(config)
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]
    source = "".join(each if each.isalnum() else "-" for each in Path(str(config["data"]["eval"])).name)[:40].strip("-")
    return Prompts(f"{source or 'data'}-{way}-{digest}", way)


def ask(jobs: Jobs, chosen: Sequence[Candidate], prompts: Prompts) -> list[Job]:
    """Submits a job for each, in the pool of its run; however often and by whomever it is asked for, one job until
    that has failed.

    Raises ConfigError where a run's config does not tell how to grade, ForbiddenError.
    """
    is_kept = prompts.name in panel_names()
    made: list[Job] = []
    for candidate in chosen:
        earlier = _earlier(jobs, candidate, prompts)
        if earlier is not None:
            made.append(earlier)
            continue
        config = _config(candidate, prompts, is_first=not is_kept and not made)
        after = tuple(job.id for job in made[:1] if not is_kept and job.state not in TERMINAL)
        loaded = build_config(config, source=f"the evaluation of {candidate.run.name} at step {candidate.step}")
        made.append(
            jobs.submit(
                job_of(
                    loaded.config,
                    pool=candidate.run.pool,
                    gpus=min(candidate.run.gpus, 1),
                    tags=_tags(candidate, prompts),
                    after=after,
                ),
                unless=_answering(candidate, prompts),
            )
        )
    return made


def asked(jobs: JobReads, prompts_name: str) -> list[Asked]:
    """The jobs that answer a panel, the newest first."""
    found = jobs.search(JobFilter(tags=(_tag(Prompts(prompts_name)),)), limit=12)
    return [how_far(job) for job in found]


def how_far(job: Job) -> Asked:
    """By what it said last, as its run directory keeps it."""
    path = local_path(job.run_dir)
    messages: list[str] = []
    if path is not None and job.state is not JobState.QUEUED:
        try:
            messages = [
                str(event.fields.get("message")) for event in RunReader(path).events() if event.kind == "progress"
            ]
        except MmrlError:
            messages = []
    answered = next((found for text in reversed(messages) if (found := read_answered(text)) is not None), None)
    return Asked(job, answered, messages[-1] if messages else "")


def steps_under_way(jobs: JobReads, run: Job, prompts: Prompts) -> set[int]:
    """The steps of a run that jobs are answering for now."""
    found = jobs.search(JobFilter(tags=(tag_of(run), _tag(prompts))), limit=100)
    tags = [tag for job in found if job.state not in TERMINAL for tag in job.tags]
    return {int(tag.removeprefix("step-")) for tag in tags if re.fullmatch(r"step-\d+", tag)}


def is_answered(candidate: Candidate, evaluations: Sequence[Evaluation]) -> bool:
    """Whether one of the evaluations is of this very model."""
    wanted = _model_folder(candidate.path)
    return any(_model_folder(each.model.path) == wanted for each in evaluations)


def _model_folder(path: str) -> str:
    """One spelling for a model that is named by its folder, by its checkpoint's, or as RUN@STEP."""
    folder = Path(path).expanduser()
    if not folder.is_dir() and "@" in path and "://" not in path:
        try:
            folder = resolve_model(path).model
        except MmrlError:
            return path
    if not folder.is_dir():
        return path
    return str((folder / MODEL_FOLDER if (folder / MODEL_FOLDER).is_dir() else folder).resolve())


def _new_config(run: Job, way: Way, *, name: str, save_as: str) -> dict[str, Any]:
    config = evaluate_config(run, "model", name=name)
    limit = config_of(run).run_config.eval.max_samples or MAX_PROMPTS
    config["eval"] = {**config["eval"], **SETTINGS[way], "max_samples": limit, "save_panel": save_as}
    return config


def _config(candidate: Candidate, prompts: Prompts, *, is_first: bool) -> dict[str, Any]:
    name = f"{candidate.run.name}-at-{candidate.step}"
    if not is_first:
        return evaluate_config(candidate.run, candidate.path, name=name, panel=prompts.name)
    if prompts.way is None:
        raise ConfigError(f"panel {prompts.name!r} is gone; choose the run's held-out data instead")
    config = _new_config(candidate.run, prompts.way, name=name, save_as=prompts.name)
    return {**config, "model": {**config["model"], "path": candidate.path}}


def _tags(candidate: Candidate, prompts: Prompts) -> tuple[str, ...]:
    return (tag_of(candidate.run), _tag(prompts), f"step-{candidate.step}")


def _answering(candidate: Candidate, prompts: Prompts) -> JobFilter:
    """What a job must have that answers, or has."""
    states = tuple(state for state in JobState if state not in _WITHOUT_ANSWER)
    return JobFilter(tags=_tags(candidate, prompts), states=states)


def _earlier(jobs: JobReads, candidate: Candidate, prompts: Prompts) -> Job | None:
    found = jobs.search(_answering(candidate, prompts), limit=1)
    return found[0] if found else None


def _tag(prompts: Prompts) -> str:
    return f"panel-{hashlib.sha256(prompts.name.encode()).hexdigest()[:12]}"
