"""How fast a run goes and when it may be done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job
from mmrl.jobs.states import JobState

STEP_TIMER = "timing_s/step"
_NUM_STEPS = 20


@dataclass(frozen=True)
class Pace:
    """step_s: seconds of a step; left_s: to the last step. None where nothing is known of it."""

    step_s: float | None = None
    left_s: float | None = None


def pace_of(jobs: JobReads, job: Job, now: datetime) -> Pace:
    """Of a job that runs: by its last steps where it times them, else by what its attempt made since it began."""
    if job.state not in (JobState.RUNNING, JobState.STOPPING):
        return Pace()
    step_s = _timed(jobs, job) or _counted(jobs, job, now)
    if step_s is None or job.total_steps is None:
        return Pace(step_s)
    return Pace(step_s, max(0, job.total_steps - job.step) * step_s)


def _timed(jobs: JobReads, job: Job) -> float | None:
    values = [point.value for point in jobs.recent_values(job.id, STEP_TIMER, _NUM_STEPS) if point.value is not None]
    return sum(values) / len(values) if values else None


def _counted(jobs: JobReads, job: Job, now: datetime) -> float | None:
    attempts = jobs.attempts(job.id)
    if not attempts or attempts[-1].first_step is None:
        return None
    made = job.step - attempts[-1].first_step
    seconds = (now - attempts[-1].started_at).total_seconds()
    return seconds / made if made > 0 and seconds > 0 else None
