"""Jobs and workers for tests of the job database."""

from __future__ import annotations

from typing import Any

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Job, Lease, NewJob, WorkerInfo
from mmrl.jobs.states import JobState


def new_job(name: str = "probe", **fields: Any) -> NewJob:
    """A noop job; `config` may be given to differ."""
    config = fields.pop("config", None) or {"name": name, "kind": "noop", "noop": {"seconds": 0.0}}
    return NewJob(config=config, name=name, kind="noop", **fields)


def submit(database: Database, name: str = "probe", **fields: Any) -> Job:
    return Jobs(database).submit(new_job(name, **fields))


def join(
    database: Database, *, cpus: int = 4, gpus: tuple[str, ...] = (), pool: str = "default", pid: int = 1
) -> Leases:
    """A worker that has registered."""
    leases = Leases(database)
    leases.register(
        WorkerInfo(host="host", boot_id="boot", pid=pid, pid_start_time=1.0, pool=pool, cpus=cpus, gpus=gpus)
    )
    return leases


def claim(leases: Leases) -> Lease:
    lease = leases.claim()
    assert lease is not None
    return lease


def start(leases: Leases) -> Lease:
    """Claims the next job and says that it runs."""
    lease = claim(leases)
    leases.move(lease, JobState.RUNNING, cause="started")
    return lease


def finish(leases: Leases, lease: Lease) -> None:
    leases.move(lease, JobState.SUCCEEDED, cause="finished", exit_code=0)
    leases.release(lease)
