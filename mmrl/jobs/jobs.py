"""`Jobs`: what commands, the console and pipelines ask of the job database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import sqlalchemy as sa

from mmrl.errors import ConflictError
from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.field_checks import check_note, check_priority, check_tags
from mmrl.jobs.finding import find_job
from mmrl.jobs.index_reads import read_checkpoints
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.lineage import active_child, checkpoint_address, copy_of, revive_dependents, runs_url_of
from mmrl.jobs.pending import pending_reason
from mmrl.jobs.records import Job, NewJob, PendingReason, User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.run_dirs import Look, looking_first
from mmrl.jobs.searching import JobFilter, search_jobs
from mmrl.jobs.states import HELD, TERMINAL, Desired, JobState
from mmrl.jobs.submitting import check_new_job, enqueue, find_alone, insert_job
from mmrl.jobs.transitions import add_event, change_state, lock_job
from mmrl.jobs.users import local_user, read_user

_HAS_RUN_OUT = sa.select(tables.jobs.c.lease_expires_at < NOW).where(tables.jobs.c.id == sa.bindparam("id"))

JobList = list[Job]
"""Inside `Jobs` the word list is a method."""

_ASKED = {Desired.CANCEL: "cancel_requested", Desired.KILL: "kill_requested", Desired.PAUSE: "pause_requested"}


class Jobs(JobReads):
    """actor: who asks; None is the user of this machine's account, who may do everything."""

    def __init__(self, database: Database, *, actor: User | None = None) -> None:
        super().__init__(database)
        self._given_actor = actor

    def submit(self, new: NewJob, *, as_draft: bool = False, unless: JobFilter | None = None) -> Job:
        """Queues a job. The same idempotency key of the same owner gives the first job back, whatever became of it.

        as_draft: only writes it down; `start` queues it. unless: where there is such a job, whoever owns it, the newest
        is given back instead; of several who submit at once with the same kinds and tags one submits.
        Raises ConfigError (also for a literal secret, by its key), ForbiddenError, NotFoundError for an unknown job in
        `after`, ConflictError for one that can succeed no more and for a key that was used with another config.
        """

        def write(look: Look | None) -> Job:
            with self.database.transaction() as connection:
                earlier = [] if unless is None else find_alone(connection, self.database, unless)
                return earlier[0] if earlier else self._submitted(connection, new, as_draft=as_draft, look=look)

        return looking_first(self.database, new.run_dir, write)

    def rehearse(self, new: NewJob) -> tuple[Job, PendingReason]:
        """The job that `submit` would give and why it would not start at once, all taken back. Raises as `submit`."""

        def write(look: Look | None) -> tuple[Job, PendingReason]:
            with self.database.transaction() as connection, connection.begin_nested() as taken_back:
                job = self._submitted(connection, new, as_draft=False, look=look)
                reason = pending_reason(connection, self.database, job)
                taken_back.rollback()
            return job, reason

        return looking_first(self.database, new.run_dir, write)

    def start(self, ref: str) -> Job:
        """Queues a draft. Raises ConflictError for a job that is none."""
        with self.database.transaction() as connection:
            job, actor = self._controlled(connection, ref)
            if enqueue(connection, self.database, job.id, actor=_by(actor)) is None:
                raise ConflictError(f"job {job.id} is no draft: it is {job.state}")
            return self._read(connection, job.id)

    def list(
        self,
        *,
        states: Iterable[JobState] | None = None,
        kind: str | None = None,
        pool: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        tags: Iterable[str] = (),
        text: str = "",
        limit: int | None = 50,
        before: str | None = None,
    ) -> JobList:
        """The newest first. before: only jobs older than the one with this id, for the next page. See `JobFilter`."""
        wanted = JobFilter(
            states=tuple(states or ()),
            kinds=() if kind is None else (kind,),
            text=text,
            tags=tuple(tags),
            pool=pool,
            owner=owner,
            name=name,
        )
        if states is not None and not wanted.states:
            return []
        with self.database.reading() as connection:
            return search_jobs(connection, self.database, wanted, limit=limit, before=before)

    def cancel(self, ref: str) -> Job:
        """Asks for the end of a job, with time for a last checkpoint; at once where no worker holds it.

        A job that was cancelled already stays so. Raises ConflictError for one that succeeded or failed.
        """
        return self._ask(ref, Desired.CANCEL)

    def kill(self, ref: str) -> Job:
        """As `cancel`, without grace. A lost job is cancelled at once: whoever asks knows that its run is gone, or does
        not care. Its GPUs stay leased until a worker of their host has found them free."""
        return self._ask(ref, Desired.KILL)

    def pause(self, ref: str) -> Job:
        """Asks a run to save and stop, to be resumed later; a queued job is paused at once."""
        return self._ask(ref, Desired.PAUSE)

    def resume(self, ref: str, *, idempotency_key: str | None = None) -> Job:
        """A paused or lost job is queued again: a new attempt in the same run directory. A cancelled or failed one gets
        a child, which goes on from its last complete checkpoint in a run directory of its own; a child that is under
        way already is given back. Jobs that were cancelled because they waited for it come back too.

        idempotency_key: of the child; the same key again gives the same child, also once that has ended.

        Raises ConflictError for any other state.
        """
        with self.database.transaction() as connection:
            job, actor = self._controlled(connection, ref)
            if job.state in (JobState.PAUSED, JobState.LOST):
                return self._requeue(connection, job, actor)
            if job.state not in (JobState.FAILED, JobState.CANCELLED):
                raise ConflictError(f"job {job.id} cannot be resumed: it is {job.state}; {_HINTS[job.state]}")
            found = read_checkpoints(connection, job.id)
            checkpoint = checkpoint_address(job, found[-1].uri) if found else job.resume_checkpoint
            return self._child(connection, job, actor, checkpoint, idempotency_key)

    def retry(self, ref: str, *, idempotency_key: str | None = None) -> Job:
        """A child of a failed or cancelled job that begins where that one began: from scratch, or from the checkpoint
        that it was given. `resume` goes on from its last checkpoint instead. idempotency_key: as there."""
        with self.database.transaction() as connection:
            job, actor = self._controlled(connection, ref)
            if job.state not in (JobState.FAILED, JobState.CANCELLED):
                raise ConflictError(f"job {job.id} cannot be tried again: it is {job.state}; {_HINTS[job.state]}")
            return self._child(connection, job, actor, job.resume_checkpoint, idempotency_key)

    def set_priority(self, ref: str, priority: int) -> Job:
        """A higher one starts earlier; what runs is not stopped for it."""
        check_priority(priority)
        return self._edit(ref, priority=priority)

    def describe(self, ref: str, *, tags: Iterable[str] | None = None, note: str | None = None) -> Job:
        """Sets tags or note; None leaves them as they are."""
        tags = None if tags is None else sorted(set(tags))
        check_tags(tags or ())
        check_note(note or "")
        values = {"tags": tags, "note": note}
        return self._edit(ref, **{name: value for name, value in values.items() if value is not None})

    def _ask(self, ref: str, desired: Desired) -> Job:
        with self.database.transaction() as connection:
            job, actor = self._controlled(connection, ref)
            to, cause = (JobState.PAUSED, "pause") if desired is Desired.PAUSE else (JobState.CANCELLED, "cancel")
            if job.state is to:
                return self._read(connection, job.id)
            if job.state in TERMINAL or (desired is Desired.PAUSE and job.state is JobState.DRAFT):
                raise ConflictError(f"job {job.id} cannot be {_DONE[to]}: it is {job.state}")
            is_stronger = job.desired is Desired.RUN or desired is not Desired.PAUSE
            if job.desired is not desired and is_stronger and job.desired is not Desired.KILL:
                table = tables.jobs
                connection.execute(table.update().where(table.c.id == job.id).values(desired=desired.value))
                add_event(connection, job.id, job.attempt, _ASKED[desired], _by(actor))
            waits_for_worker = job.state in HELD or (job.state is JobState.LOST and desired != Desired.KILL)
            if not waits_for_worker:
                change_state(connection, job.id, to, cause=cause, actor=_by(actor))
            return self._read(connection, job.id)

    def _requeue(self, connection: sa.Connection, job: Job, actor: User) -> Job:
        values = {"desired": Desired.RUN.value, "retries": 0, "available_at": NOW}
        change_state(connection, job.id, JobState.QUEUED, cause="resume", actor=_by(actor), values=values)
        return self._read(connection, job.id)

    def _child(self, connection: sa.Connection, job: Job, actor: User, checkpoint: str | None, key: str | None) -> Job:
        child = active_child(connection, job.id)
        if child is None:
            new = copy_of(job, parent_job_id=job.id, resume_checkpoint=checkpoint, idempotency_key=key)
            owner = read_user(connection, job.owner_id)
            check_new_job(new, replace(owner, scopes=actor.scopes), self.database)
            child = insert_job(connection, self.database, new, owner, runs_url=runs_url_of(job))
            enqueue(connection, self.database, child, actor=_by(actor))
            revive_dependents(connection, self.database, {job.id: child}, actor=_by(actor))
        return self._read(connection, child)

    def _edit(self, ref: str, **values: object) -> Job:
        with self.database.transaction() as connection:
            job, actor = self._controlled(connection, ref)
            if values:
                table = tables.jobs
                connection.execute(table.update().where(table.c.id == job.id).values(values))
                add_event(connection, job.id, job.attempt, "edited", _by(actor), payload=dict(values))
            return self._read(connection, job.id)

    def _controlled(self, connection: sa.Connection, ref: str) -> tuple[Job, User]:
        """The job, its row locked, and who asks; ForbiddenError if they may not change it.

        A lease that has run out is seen here too: a job can be ended or resumed where no worker is left to look.
        """
        actor = self._actor(connection)
        job_id = find_job(connection, ref)
        standing = lock_job(connection, job_id)
        if (
            standing is not None
            and standing.state in HELD
            and connection.execute(_HAS_RUN_OUT, {"id": job_id}).scalar()
        ):
            change_state(connection, job_id, JobState.LOST, cause="lease_expired", actor=_by(actor))
        job = self._read(connection, job_id)
        check_allowed(actor, "control", settings=self.database.settings, owner_id=job.owner_id)
        return job, actor

    def _submitted(self, connection: sa.Connection, new: NewJob, *, as_draft: bool, look: Look | None) -> Job:
        actor = self._actor(connection)
        owner = read_user(connection, new.owner) if new.owner is not None else actor
        if owner.id != actor.id:
            check_allowed(actor, "admin", settings=self.database.settings)
        check_new_job(new, replace(owner, scopes=actor.scopes), self.database)
        job_id = insert_job(connection, self.database, new, owner, look=look)
        if not as_draft:
            enqueue(connection, self.database, job_id, actor=_by(actor))
        return self._read(connection, job_id)

    def _actor(self, connection: sa.Connection) -> User:
        return self._given_actor or local_user(connection)


def _by(user: User) -> str:
    return f"user:{user.id}"


_DONE = {JobState.PAUSED: "paused", JobState.CANCELLED: "cancelled"}
_HINTS = {
    JobState.DRAFT: "submit it first",
    JobState.QUEUED: "it starts by itself",
    JobState.STARTING: "it is under way",
    JobState.RUNNING: "it is under way",
    JobState.STOPPING: "wait until it has stopped",
    JobState.PAUSED: "`mmrl job resume` goes on with it",
    JobState.LOST: "`mmrl job resume` goes on with it",
    JobState.SUCCEEDED: "submit a new job, from its checkpoint if you like",
}
