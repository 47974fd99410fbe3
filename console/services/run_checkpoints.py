"""The checkpoints of a run: which is best, which is kept for good; and the jobs that evaluate or export one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mmrl.config.evaluate import EvaluatedDataConfig, EvaluateSettings
from mmrl.config.loading import build_config
from mmrl.errors import ConfigError, NotFoundError
from mmrl.jobs.configs import config_of
from mmrl.jobs.from_config import job_of
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import CheckpointRow, Job, User, local_path
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.searching import JobFilter
from mmrl.runs.checkpoint_refs import best_rule
from mmrl.runs.pins import is_pinned, pin_checkpoint, unpin_checkpoint

Use = Literal["evaluate", "export"]


@dataclass(frozen=True)
class CheckpointLine:
    """metric: that by which the run chooses its best; None where it has none. is_here: its files are here."""

    row: CheckpointRow
    metric: float | None
    is_best: bool
    is_kept: bool
    is_here: bool


@dataclass(frozen=True)
class CheckpointTable:
    """metric: the name of that by which the best is chosen; None where the config names none."""

    metric: str | None
    lines: tuple[CheckpointLine, ...]


def checkpoint_table(jobs: JobReads, job: Job) -> CheckpointTable:
    """The checkpoints that are whole, the newest first."""
    metric, direction = best_rule(dict(job.config))
    rows = jobs.checkpoints(job.id)
    values = {row.step: row.metrics[metric] for row in rows if metric is not None and metric in row.metrics}
    sign = -1 if direction == "max" else 1
    best = min(values, key=lambda step: (sign * values[step], step), default=None)
    lines = [
        CheckpointLine(row, values.get(row.step), row.step == best, _is_kept(row), _folder(row) is not None)
        for row in reversed(rows)
    ]
    return CheckpointTable(metric, tuple(lines))


def keep(jobs: Jobs, job: Job, step: int, viewer: User, *, is_kept: bool, note: str = "") -> None:
    """Keeps a checkpoint whatever the run's retention says, or leaves it to that again.

    Raises ForbiddenError, NotFoundError for one that is gone or not on this machine.
    """
    check_allowed(viewer, "control", settings=jobs.database.settings, owner_id=job.owner_id)
    row = checkpoint_of(jobs, job, step)
    folder = _folder(row)
    if folder is None:
        raise NotFoundError(f"checkpoint {step} of {job.name}, {row.uri}, is not on this machine")
    if is_kept:
        pin_checkpoint(folder, note=note)
    else:
        unpin_checkpoint(folder)


def use(jobs: Jobs, job: Job, step: int, what: Use, *, num_made: int) -> Job:
    """Submits the job that evaluates, or exports, a checkpoint, in the pool of its run.

    num_made: how many the viewer saw already, see `made_of`; a double click makes one.
    Raises ConfigError where the run's config does not tell how, ForbiddenError.
    """
    row = checkpoint_of(jobs, job, step)
    name = _name(job, row.step, what)
    config = evaluate_config(job, row.uri, name=name) if what == "evaluate" else _export_config(name, row)
    loaded = build_config(config, source=f"the {what} of {job.name} at step {step}")
    return jobs.submit(
        job_of(
            loaded.config,
            pool=job.pool,
            gpus=min(job.gpus, 1),
            tags=(tag_of(job),),
            idempotency_key=f"{what}:{job.id}@{step}:{num_made}",
        )
    )


def made_of(jobs: JobReads, job: Job, step: int, what: Use) -> int:
    """How many jobs were submitted to evaluate, or export, a checkpoint."""
    return jobs.count(JobFilter(tags=(tag_of(job),), name=_name(job, step, what)))


def tag_of(job: Job) -> str:
    """The tag of jobs that use checkpoints of this run."""
    return f"from-{job.short_id}"


def checkpoint_of(jobs: JobReads, job: Job, step: int) -> CheckpointRow:
    """Raises NotFoundError that names the steps there are."""
    rows = jobs.checkpoints(job.id)
    found = next((row for row in rows if row.step == step), None)
    if found is None:
        steps = ", ".join(str(row.step) for row in rows) or "none"
        raise NotFoundError(f"{job.name} has no checkpoint of step {step} any more; it has: {steps}")
    return found


def evaluate_config(job: Job, model: str, *, name: str, panel: str | None = None) -> dict[str, Any]:
    """The config of a job that evaluates a model as the run does: on its held-out data, or on a panel that was kept.

    model: of `EvaluatedModelConfig.path`. Raises ConfigError where the run's config does not tell how.
    """
    run = config_of(job).run_config
    has_prompts = panel is not None or run.data.eval is not None
    if not has_prompts or not run.reward:
        missing = "reward" if has_prompts else "data.eval"
        raise ConfigError(
            f"the config of {job.name} has no {missing}, so that it does not say how to evaluate; "
            "write a config of kind evaluate and submit it"
        )
    settings = run.model_dump(mode="json", include={"seed", "reward", "reward_runner", "rollout"})
    data = run.data.model_dump(mode="json", include=set(EvaluatedDataConfig.model_fields))
    answers = run.eval.model_dump(mode="json", include=set(EvaluateSettings.model_fields))
    return {
        **settings,
        "name": name,
        "kind": "evaluate",
        "model": {"path": model, "dtype": run.model.dtype, "device": run.model.device},
        "data": {} if panel else data,
        "eval": {"panel": panel} if panel else answers,
    }


def _export_config(name: str, row: CheckpointRow) -> dict[str, Any]:
    return {"name": name, "kind": "export", "model": {"path": row.uri}}


def _name(job: Job, step: int, what: Use) -> str:
    return f"{job.name}-{what}-{step}"


def _is_kept(row: CheckpointRow) -> bool:
    folder = _folder(row)
    return folder is not None and is_pinned(folder)


def _folder(row: CheckpointRow) -> Path | None:
    path = local_path(row.uri)
    return path if path is not None and path.is_dir() else None
