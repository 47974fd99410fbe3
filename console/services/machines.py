"""The cluster: machines with what they hold, pools with what is free, and the queue with what each job waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import Job, Pool, WorkerRecord
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import HELD, JobState

SHOWN_IN_QUEUE = 20
_REMEMBERED = timedelta(days=1)

Condition = Literal["active", "draining", "silent"]
"""silent: it has not been heard of for a lease, so its machine or its process may be gone."""


@dataclass(frozen=True)
class Machine:
    """A worker. jobs: what it holds. used_cpus: slots of those. gpu_jobs: its GPUs' UUIDs -> the job that has it."""

    worker: WorkerRecord
    condition: Condition
    jobs: tuple[Job, ...]
    used_cpus: int
    gpu_jobs: dict[str, Job | None]

    @property
    def num_busy_gpus(self) -> int:
        return sum(job is not None for job in self.gpu_jobs.values())


@dataclass(frozen=True)
class Waiting:
    """A job in the queue and the first thing that keeps it from starting. code: see `PendingReason`."""

    job: Job
    code: str
    reason: str


@dataclass(frozen=True)
class ClusterView:
    """machines: those alive, and those that fell silent within a day. num_waiting: jobs in the queue, shown or not."""

    machines: tuple[Machine, ...]
    pools: tuple[Pool, ...]
    waiting: tuple[Waiting, ...]
    num_waiting: int
    now: datetime

    @property
    def alive(self) -> tuple[Machine, ...]:
        return tuple(machine for machine in self.machines if machine.condition != "silent")


def cluster_view(jobs: JobReads, fleet: Fleet, *, queue_limit: int = SHOWN_IN_QUEUE) -> ClusterView:
    now = datetime.fromtimestamp(jobs.database.now(), UTC)
    waiting, num_waiting = waiting_jobs(jobs, limit=queue_limit)
    return ClusterView(machines(jobs, fleet, now), tuple(fleet.pools()), waiting, num_waiting, now)


def machines(jobs: JobReads, fleet: Fleet, now: datetime) -> tuple[Machine, ...]:
    """By pool, those that are heard of first."""
    held = {job.id: job for job in jobs.search(JobFilter(states=tuple(HELD)), limit=1000)}
    leases = fleet.gpu_leases()
    seen = [each for each in fleet.workers(include_dead=True) if _is_remembered(each, now)]
    found = [_machine(each, held, leases) for each in seen]
    return tuple(sorted(found, key=lambda each: (each.worker.pool, each.condition == "silent", each.worker.id)))


def waiting_jobs(jobs: JobReads, *, limit: int) -> tuple[tuple[Waiting, ...], int]:
    """The oldest of the queue with their reasons, and how many wait in all."""
    wanted = JobFilter(states=(JobState.QUEUED,))
    count = jobs.count(wanted)
    oldest = jobs.search(wanted, limit=limit, after="")
    found = []
    for job in reversed(oldest):
        reason = jobs.why_pending(job)
        found.append(Waiting(job, reason.code, reason.message))
    return tuple(found), count


def _is_remembered(worker: WorkerRecord, now: datetime) -> bool:
    return worker.is_alive or (worker.state != "dead" and now - worker.heartbeat_at < _REMEMBERED)


def _machine(worker: WorkerRecord, held: dict[str, Job], leases: dict[str, str]) -> Machine:
    own = tuple(held[job_id] for job_id in worker.job_ids if job_id in held)
    condition: Condition = "silent"
    if worker.is_alive:
        condition = "draining" if worker.state == "draining" else "active"
    gpu_jobs = {gpu: held.get(leases[gpu]) if gpu in leases else None for gpu in worker.gpus}
    return Machine(worker, condition, own, _slots(own), gpu_jobs)


def _slots(jobs: Iterable[Job]) -> int:
    return sum(1 if job.backend == "ray" else job.cpus for job in jobs)
