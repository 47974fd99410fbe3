"""The first look: what runs and how far it is, what waits, what failed, the best checkpoints, the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from console.services.machines import ClusterView, cluster_view
from console.services.runs import RunLine, run_line
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.glance import BestCheckpoint, best_checkpoints, open_failures, state_counts
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import Job
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import HELD, JobState
from mmrl.jobs.users import Users

NUM_RUNNING = 8
NUM_WAITING = 5
NUM_FAILURES = 4
NUM_CHECKPOINTS = 5
FAILURES_WITHIN_S = 7 * 86_400.0
_SPARK_POINTS = 40
_RUNNING = (*HELD, JobState.LOST)
_HEADLINES = (
    "reward/mean",
    "sft/loss",
    "preference/loss",
    "reward_model/loss",
    "eval/reward",
)


@dataclass(frozen=True)
class Headline:
    """The metric that tells most of a run, thinned for a small curve."""

    metric: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class RunningRun:
    line: RunLine
    headline: Headline | None


@dataclass(frozen=True)
class Overview:
    """counts: jobs by state. failures: of the last week, that nobody has resumed or tried again."""

    counts: Mapping[JobState, int]
    running: tuple[RunningRun, ...]
    failures: tuple[Job, ...]
    num_failures: int
    checkpoints: tuple[BestCheckpoint, ...]
    cluster: ClusterView
    has_data: bool
    now: datetime

    @property
    def num_running(self) -> int:
        """Lost ones too: they are shown among them, and go on by themselves."""
        return sum(self.counts.get(state, 0) for state in _RUNNING)

    @property
    def has_jobs(self) -> bool:
        return bool(self.counts)


def overview(jobs: JobReads, fleet: Fleet, catalogue: Catalogue) -> Overview:
    database = jobs.database
    now = datetime.fromtimestamp(database.now(), UTC)
    failures, num_failures = open_failures(database, within_s=FAILURES_WITHIN_S, limit=NUM_FAILURES)
    return Overview(
        counts=state_counts(database),
        running=running_runs(jobs, now),
        failures=tuple(failures),
        num_failures=num_failures,
        checkpoints=tuple(best_checkpoints(database, limit=NUM_CHECKPOINTS)),
        cluster=cluster_view(jobs, fleet, queue_limit=NUM_WAITING),
        has_data=bool(catalogue.all()),
        now=now,
    )


def running_runs(jobs: JobReads, now: datetime) -> tuple[RunningRun, ...]:
    """The newest of those that a worker holds, or whose worker has fallen silent."""
    found = jobs.search(JobFilter(states=_RUNNING), limit=NUM_RUNNING)
    owners = {user.id: user.name for user in Users(jobs.database).all()} if found else {}
    return tuple(RunningRun(run_line(jobs, job, now=now, owners=owners), headline(jobs, job)) for job in found)


def headline(jobs: JobReads, job: Job) -> Headline | None:
    """None where the run has told none of the metrics yet."""
    found = jobs.metrics(job.id, _HEADLINES, _SPARK_POINTS)
    for metric in _HEADLINES:
        values = tuple(point.value for point in found.get(metric, []) if point.value is not None)
        if values:
            return Headline(metric, values)
    return None
