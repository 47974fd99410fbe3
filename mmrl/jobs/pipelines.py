"""A pipeline as jobs that wait for each other, found again and gone on with when it is started once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mmrl.config.pipeline import Pipeline
from mmrl.jobs.config_checks import config_hash
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.jobs.references import descendants
from mmrl.jobs.states import JobState

PIPELINE_TAG = "pipeline:"
STEP_TAG = "step:"


@dataclass
class PipelineJobs:
    """step -> the job that stands for it now, and the job that it was first submitted as."""

    pipeline: Pipeline
    current: dict[str, Job] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return all(job.is_terminal for job in self.current.values())

    def refresh(self, jobs: Jobs) -> None:
        """How the steps stand; a step that somebody resumed stands as its child."""
        for step, root in self.roots.items():
            self.current[step] = descendants(jobs, root)[-1]


def start_pipeline(jobs: Jobs, pipeline: Pipeline, *, pool: str, salt: str = "", priority: int = 0) -> PipelineJobs:
    """Submits the steps, or finds those of before: what succeeded stays, what failed or was cancelled is resumed.

    A step is the same as before while its config, those of the steps that it waits for, and `salt` are. All configs are
    checked before the first job is submitted. Raises ConfigError, NotFoundError.
    """
    hashes = _check(pipeline)
    found = PipelineJobs(pipeline)
    for step in pipeline.order:
        loaded = pipeline.load(step, lambda name, word: f"job:{found.roots[name]}/{word}")
        settings = pipeline.config.steps[step]
        root = jobs.submit(
            job_of(
                loaded.config,
                cpus=settings.cpus,
                gpus=settings.gpus,
                pool=pool,
                priority=priority,
                after=tuple(found.current[name].id for name in pipeline.needs[step]),
                idempotency_key=f"pipeline/{pipeline.config.name}/{step}/{pool}/{hashes[step][:24]}{salt}",
                tags=(f"{PIPELINE_TAG}{pipeline.config.name}", f"{STEP_TAG}{step}"),
            )
        )
        found.roots[step] = root.id
        found.current[step] = _gone_on_with(jobs, descendants(jobs, root.id)[-1])
    found.refresh(jobs)
    return found


def _gone_on_with(jobs: Jobs, job: Job) -> Job:
    if job.state in (JobState.FAILED, JobState.CANCELLED, JobState.PAUSED):
        return jobs.resume(job.id)
    return job


def _check(pipeline: Pipeline) -> Mapping[str, str]:
    """Each step's hash, over its config and the hashes of the steps that it waits for; all of them load."""
    hashes: dict[str, str] = {}
    for step in pipeline.order:
        loaded = pipeline.load(step, lambda name, word: f"job:{hashes[name]}/{word}")
        needs = {name: hashes[name] for name in pipeline.needs[step]}
        hashes[step] = config_hash({"config": loaded.config.model_dump(mode="json"), "needs": needs})
    return hashes
