"""What the page of one run asks beside its curves, logs and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from console.services.event_words import EventLine, event_line
from console.services.pace import Pace, pace_of
from console.services.run_actions import Action, may_control, possible
from console.services.run_checkpoints import tag_of
from console.services.runs import state_word, why
from mmrl.config.comparing import Difference, diff_configs
from mmrl.config.dump import value_text, yaml_text
from mmrl.config.secrets import redact
from mmrl.errors import ConfigError, MmrlError, NotFoundError
from mmrl.jobs.configs import config_of
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import Attempt, GpuUse, Job, User, WorkerRecord
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.users import Users
from mmrl.runs.forks import read_fork
from mmrl.runs.mirror import local_folder

NUM_EVENTS = 60
_NUM_USES = 20


@dataclass(frozen=True)
class RunHead:
    """What stands above everything else. state: see `state_word`. num_children: runs that were made of this one.

    actions: what its state allows; may_act: whether the viewer may.
    """

    job: Job
    state: str
    why: str | None
    pace: Pace
    owner: str
    num_children: int
    actions: frozenset[Action]
    may_act: bool
    now: datetime


@dataclass(frozen=True)
class ConfigLine:
    """One setting. origin: `set`, or `default` where it is what it would be unsaid."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class ConfigView:
    """yaml: the whole config, secrets left out. lines: its settings with their origins. parent: the run that this one
    was made of, and what differs from it; problem: why settings cannot be told, where this version refuses them."""

    yaml: str
    lines: tuple[ConfigLine, ...]
    parent: Job | None = None
    differences: tuple[Difference, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Lineage:
    """ancestors: the first one first, without the run itself. uses: jobs that evaluate or export its checkpoints.

    fork: what its run directory says of the checkpoint that it began at.
    """

    ancestors: tuple[Job, ...]
    children: tuple[Job, ...]
    uses: tuple[Job, ...]
    fork: Mapping[str, object] | None


@dataclass(frozen=True)
class Hardware:
    """worker: that which holds the run now, or held it last; None where it is not known any more."""

    worker: WorkerRecord | None
    attempts: tuple[Attempt, ...]
    gpus: tuple[GpuUse, ...]


def run_head(jobs: Jobs, ref: str, viewer: User) -> RunHead:
    """Raises NotFoundError."""
    job = jobs.get(ref)
    now = datetime.fromtimestamp(jobs.database.now(), UTC)
    return RunHead(
        job=job,
        state=state_word(job),
        why=why(jobs, job),
        pace=pace_of(jobs, job, now),
        owner=owner_name(jobs, job),
        num_children=len(jobs.children(job.id)),
        actions=possible(job),
        may_act=may_control(jobs, job, viewer),
        now=now,
    )


def owner_name(jobs: JobReads, job: Job) -> str:
    try:
        return Users(jobs.database).get(job.owner_id).name
    except NotFoundError:
        return job.owner_id


def history(jobs: JobReads, job: Job, *, limit: int = NUM_EVENTS) -> list[EventLine]:
    """The last so many events, the newest first."""
    people = {user.id: user.name for user in Users(jobs.database).all()}
    return [event_line(event, people=people) for event in reversed(jobs.recent_events(job.id, limit))]


def config_view(jobs: JobReads, job: Job) -> ConfigView:
    yaml = yaml_text(redact(dict(job.config)))
    try:
        loaded = config_of(job)
    except ConfigError as error:
        return ConfigView(yaml, (), problem=str(error))
    told = _flat(loaded.config.model_dump(mode="json", exclude_defaults=True))
    lines = tuple(
        ConfigLine(leaf.key, value_text(leaf.value), "set" if leaf.key in told else "default") for leaf in loaded.leaves
    )
    if job.parent_job_id is None:
        return ConfigView(yaml, lines)
    parent = jobs.get(job.parent_job_id)
    try:
        return ConfigView(yaml, lines, parent, tuple(diff_configs(config_of(parent), loaded)))
    except ConfigError as error:
        return ConfigView(yaml, lines, parent, problem=str(error))


def lineage(jobs: JobReads, job: Job) -> Lineage:
    try:
        fork = read_fork(local_folder(job.run_dir))
    except (OSError, MmrlError):
        fork = None
    return Lineage(
        ancestors=tuple(jobs.lineage(job.id)[:-1]),
        children=tuple(jobs.children(job.id)),
        uses=tuple(jobs.search(JobFilter(tags=(tag_of(job),)), limit=_NUM_USES)),
        fork=fork,
    )


def hardware(jobs: JobReads, job: Job) -> Hardware:
    attempts = tuple(jobs.attempts(job.id))
    wanted = job.worker_id or (attempts[-1].worker_id if attempts else None)
    workers = Fleet(jobs.database).workers(include_dead=True) if wanted is not None else []
    worker = next((worker for worker in workers if worker.id == wanted), None)
    return Hardware(worker, attempts, tuple(jobs.gpus(job.id)))


def _flat(value: object, prefix: str = "") -> set[str]:
    """The dotted keys of the leaves, lists of maps included as `key.0.name`, with those of the lists themselves."""
    if isinstance(value, Mapping):
        return {key for name, each in value.items() for key in _flat(each, f"{prefix}.{name}" if prefix else str(name))}
    if isinstance(value, list | tuple):
        inner = {key for place, each in enumerate(value) for key in _flat(each, f"{prefix}.{place}")}
        return {prefix, *inner}
    return {prefix}
