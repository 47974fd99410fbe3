"""What can be done with a run from the console: stop, kill, pause, resume, retry, tags and note.

Each takes the run's id, checks its state in the database, and does the same once however often it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mmrl.errors import ConflictError, MmrlError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job, User
from mmrl.jobs.roles import is_allowed
from mmrl.jobs.states import HELD, TERMINAL, Desired, JobState

MAX_TAGS = 20
MAX_TAG_LENGTH = 60
MAX_NOTE_LENGTH = 4000


class Action(StrEnum):
    RESUME = "resume"
    PAUSE = "pause"
    STOP = "stop"
    KILL = "kill"
    RETRY = "retry"


HELP = {
    Action.RESUME: "Go on from the last checkpoint. For a stopped or failed run a new run does so.",
    Action.PAUSE: "Write a checkpoint, free the machine, and go on later.",
    Action.STOP: "Write a last checkpoint and end. What the run wrote stays.",
    Action.KILL: "End at once, without a last checkpoint. What the run wrote before stays.",
    Action.RETRY: "Begin once more from the start, as a new run with the same settings.",
}


@dataclass(frozen=True)
class Done:
    """What came of an action on one run. other: the new run that it made. is_error: nothing was changed."""

    job: Job
    text: str
    other: Job | None = None
    is_error: bool = False


def possible(job: Job) -> frozenset[Action]:
    """What the job's state allows."""
    found = set()
    if job.state not in TERMINAL and job.desired not in (Desired.CANCEL, Desired.KILL):
        found.add(Action.STOP)
    if (job.state in HELD or job.state is JobState.LOST) and job.desired is not Desired.KILL:
        found.add(Action.KILL)
    if job.state in (JobState.QUEUED, JobState.STARTING, JobState.RUNNING) and job.desired is Desired.RUN:
        found.add(Action.PAUSE)
    if job.state in (JobState.PAUSED, JobState.LOST, JobState.FAILED, JobState.CANCELLED):
        found.add(Action.RESUME)
    if job.state in (JobState.FAILED, JobState.CANCELLED):
        found.add(Action.RETRY)
    return frozenset(found)


def may_control(jobs: Jobs, job: Job, viewer: User) -> bool:
    """Whether the viewer would be let; the check that counts is made again where the job is changed."""
    return is_allowed(viewer, "control", settings=jobs.database.settings, owner_id=job.owner_id)


def act(jobs: Jobs, action: Action, job_id: str, *, num_children: int | None = None) -> Done:
    """Does it and says what came of it.

    num_children: the runs made of this one that the viewer saw; a second click, or another viewer's, makes no second.
    Raises ForbiddenError, NotFoundError, ConflictError for a state that does not allow it.
    """
    before = jobs.get(job_id)
    key = None if num_children is None else f"{action}:{before.id}:{num_children}"
    try:
        after = _CALLS[action](jobs, before.id, key)
    except ConflictError:
        now = jobs.get(job_id)
        if not _is_what_was_wanted(action, now):
            raise
        return Done(now, f"{now.name} is {now.state} already.")
    if after.id != before.id:
        return Done(before, f"{after.name} {after.short_id} goes on for {before.short_id}: {after.state}.", other=after)
    return Done(after, _told(action, after))


def act_on_all(jobs: Jobs, action: Action, job_ids: Sequence[str]) -> list[Done]:
    """The same on several; one that cannot be changed does not keep the others from it."""
    found = []
    for job_id in job_ids:
        try:
            found.append(act(jobs, action, job_id, num_children=len(jobs.children(job_id))))
        except MmrlError as error:
            found.append(Done(jobs.get(job_id), str(error), is_error=True))
    return found


def describe(jobs: Jobs, job_id: str, *, tags: Iterable[str] | None = None, note: str | None = None) -> Job:
    """Sets tags or note. Raises ConflictError for what is too long, ForbiddenError."""
    wanted = None if tags is None else sorted({" ".join(tag.split()) for tag in tags} - {""})
    if wanted is not None and (len(wanted) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in wanted)):
        raise ConflictError(f"a run has at most {MAX_TAGS} tags of at most {MAX_TAG_LENGTH} characters")
    if note is not None and len(note) > MAX_NOTE_LENGTH:
        raise ConflictError(f"a note has at most {MAX_NOTE_LENGTH} characters (got {len(note)})")
    return jobs.describe(job_id, tags=wanted, note=note)


def _is_what_was_wanted(action: Action, job: Job) -> bool:
    if action is Action.RESUME:
        return job.state in (JobState.QUEUED, JobState.STARTING, JobState.RUNNING) and job.desired is Desired.RUN
    return False


def _told(action: Action, job: Job) -> str:
    if job.state in HELD and action is not Action.RESUME:
        return f"{job.name}: {_ASKED[action]}"
    return f"{job.name} is {job.state}."


_CALLS: dict[Action, Callable[[Jobs, str, str | None], Job]] = {
    Action.RESUME: lambda jobs, job_id, key: jobs.resume(job_id, idempotency_key=key),
    Action.RETRY: lambda jobs, job_id, key: jobs.retry(job_id, idempotency_key=key),
    Action.PAUSE: lambda jobs, job_id, _: jobs.pause(job_id),
    Action.STOP: lambda jobs, job_id, _: jobs.cancel(job_id),
    Action.KILL: lambda jobs, job_id, _: jobs.kill(job_id),
}
_ASKED = {
    Action.PAUSE: "it writes a checkpoint and then pauses.",
    Action.STOP: "it writes a last checkpoint and then ends.",
    Action.KILL: "it is ended at once.",
    Action.RETRY: "it begins once more.",
}
