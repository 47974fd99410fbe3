"""What leaves `mmrl.jobs`: plain frozen dataclasses. Times are aware datetimes in UTC, by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from mmrl.jobs.ids import short_id
from mmrl.jobs.states import HELD, TERMINAL, Desired, JobState

Backend = Literal["process", "ray"]
Role = Literal["viewer", "member", "admin"]
WorkerState = Literal["active", "draining", "dead"]
CheckpointState = Literal["writing", "complete", "deleted"]


@dataclass(frozen=True)
class NewJob:
    """A job to submit.

    config: the resolved config as plain data, secrets only as references (`env:NAME`, `file:PATH`).
    after: ids of jobs that must have succeeded before this one starts.
    max_attempts: how often it is started by itself; resuming it by hand begins to count anew.
    available_at: not before this time. owner: a user's id; None is the user of this machine's account.
    run_dir: default `home()/runs/<name>-<end of the id>`, or the same under MMRL_RUNS_URL.
    """

    config: Mapping[str, Any]
    name: str
    kind: str
    pool: str = "default"
    cpus: int = 1
    gpus: int = 0
    priority: int = 0
    after: tuple[str, ...] = ()
    idempotency_key: str | None = None
    max_attempts: int = 3
    available_at: datetime | None = None
    parent_job_id: str | None = None
    resume_checkpoint: str | None = None
    owner: str | None = None
    run_dir: str | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    backend: Backend = "process"


@dataclass(frozen=True)
class Job:
    """A job as it stands.

    attempt: number of starts. lease_epoch: grows whenever another worker may own it. retries: automatic restarts since
    a person last started it. data_hashes: by name in the config, the version of each data set that is registered.
    resume_checkpoint: path of the checkpoint that its first attempt goes on from.
    """

    id: str
    name: str
    kind: str
    state: JobState
    desired: Desired
    owner_id: str
    pool: str
    backend: Backend
    cpus: int
    gpus: int
    priority: int
    attempt: int
    max_attempts: int
    retries: int
    lease_epoch: int
    worker_id: str | None
    lease_expires_at: datetime | None
    available_at: datetime | None
    idempotency_key: str | None
    parent_job_id: str | None
    resume_checkpoint: str | None
    step: int
    total_steps: int | None
    error_class: str | None
    error_message: str | None
    exit_code: int | None
    config: Mapping[str, Any]
    config_sha256: str
    code_version: str
    data_hashes: Mapping[str, str]
    run_dir: str
    tags: tuple[str, ...]
    note: str | None
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    after: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_held(self) -> bool:
        return self.state in HELD

    @property
    def short_id(self) -> str:
        return short_id(self.id)


@dataclass(frozen=True)
class Attempt:
    """One start of a job. token: what the trainer must present to write a checkpoint.

    first_step: the step that its loop went on from; rows of earlier attempts beyond it no longer count.
    """

    job_id: str
    attempt: int
    backend: Backend
    worker_id: str | None
    external_id: str | None
    host: str | None
    boot_id: str | None
    pid: int | None
    pid_start_time: float | None
    pgid: int | None
    log_uri: str | None
    token: str
    first_step: int | None
    started_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    exit_code: int | None


@dataclass(frozen=True)
class Lease:
    """A worker's right to write about a job: valid while the job's `worker_id` and `lease_epoch` are these.

    gpus: the UUIDs of the GPUs that the attempt may use.
    """

    job_id: str
    worker_id: str
    lease_epoch: int
    attempt: int
    token: str
    gpus: tuple[str, ...]
    job: Job


@dataclass(frozen=True)
class LeaseView:
    """A lease after a beat. is_held: still this worker's, and extended.

    is_superseded: another owner has the job, or it has ended. The child must go, unless another worker adopted the very
    `attempt`. Neither of both: the lease ran out while nobody else took the job, and `Leases.adopt` gets it back.
    """

    job_id: str
    desired: Desired
    state: JobState
    lease_epoch: int
    is_held: bool
    is_superseded: bool
    attempt: int = 0


@dataclass(frozen=True)
class WorkerInfo:
    """A worker that joins. gpus: UUIDs. pid_start_time: seconds since 1970; with boot_id it tells the process."""

    host: str
    boot_id: str
    pid: int
    pid_start_time: float
    pool: str = "default"
    cpus: int = 1
    gpus: tuple[str, ...] = ()
    version: str = ""
    backends: tuple[Backend, ...] = ("process", "ray")


@dataclass(frozen=True)
class WorkerRecord:
    """A worker as the database knows it. is_alive: it beat within its lease and is not dead."""

    id: str
    host: str
    boot_id: str
    pid: int
    pid_start_time: float
    pool: str
    cpus: int
    gpus: tuple[str, ...]
    backends: tuple[Backend, ...]
    version: str
    state: WorkerState
    registered_at: datetime
    heartbeat_at: datetime
    is_alive: bool
    job_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pool:
    """A pool of workers. capacity: most jobs at once; None is as many as its workers hold."""

    name: str
    capacity: int | None
    num_workers: int
    cpus: int
    free_cpus: int
    gpus: int
    free_gpus: int
    num_queued: int
    num_held: int


@dataclass(frozen=True)
class QueueFigure:
    """Jobs of a pool in one state. oldest_s: how long ago the oldest of them was queued; None where none was."""

    pool: str
    state: JobState
    num_jobs: int
    oldest_s: float | None


@dataclass(frozen=True)
class PendingReason:
    """Why a job does not run yet. position: 1 is next in its pool, None if it is not in the queue.

    code: not_queued, dependency, not_before, no_worker, too_large, pool_full, busy, next; fetching, where a worker has
    it and its inputs are still on their way.
    """

    code: str
    message: str
    position: int | None = None


@dataclass(frozen=True)
class GpuUse:
    """A GPU that an attempt was given, and until when; None while it has it."""

    gpu_uuid: str
    attempt: int
    acquired_at: datetime
    released_at: datetime | None


@dataclass(frozen=True)
class JobEvent:
    """One line of a job's history. from_state, to_state: None where the state stayed."""

    id: int
    job_id: str
    attempt: int
    at: datetime
    from_state: JobState | None
    to_state: JobState | None
    cause: str
    actor: str
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint in the index. uri: its folder. metrics: the numbers of its step."""

    step: int
    uri: str
    num_bytes: int = 0
    manifest_sha256: str | None = None
    state: CheckpointState = "complete"
    metrics: Mapping[str, float] = field(default_factory=dict)
    attempt: int = 0
    id: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True)
class ShardRow:
    """A shard of samples in the index: steps step_lo to step_hi, both included."""

    split: str
    step_lo: int
    step_hi: int
    uri: str
    num_rows: int
    num_bytes: int
    sha256: str | None = None
    attempt: int = 0


@dataclass(frozen=True)
class MetricPoint:
    """A metric at a step, or over a bucket of steps: then `value` is their mean and low, high their extremes."""

    step: int
    value: float | None
    low: float | None
    high: float | None
    attempt: int


@dataclass(frozen=True)
class User:
    """A person or a service. id: stable; `local:NAME` is an account of the machine."""

    id: str
    name: str
    email: str | None
    role: Role
    created_at: datetime
    is_disabled: bool = False
    scopes: frozenset[str] | None = None
    """Of the token that spoke for the user; None is all that the role allows."""
    token_expires_at: datetime | None = None
    """When that token ends; None is never, or that there is none."""


@dataclass(frozen=True)
class ApiToken:
    """A token without its secret, which is stored as a hash only."""

    id: str
    user_id: str
    name: str
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True)
class DatasetRow:
    """A version of a data set in the catalogue. validation_state: valid, or missing where its files are gone."""

    id: str
    name: str
    version: str
    uri: str
    format: str
    num_rows: int
    num_bytes: int
    is_current: bool
    validation_state: str
    report: Mapping[str, Any]
    owner_id: str | None
    created_at: datetime


def local_path(uri: str) -> Path | None:
    """The path that a run directory's address means on this machine; None where it lies elsewhere."""
    if "://" not in uri:
        return Path(uri)
    return Path(uri.removeprefix("file://")) if uri.startswith("file://") else None
