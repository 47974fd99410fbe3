"""What people do with jobs that are there, on both engines: cancel, pause, resume, retry."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from job_rows import claim, finish, join, new_job, start, submit

from mmrl.errors import ConflictError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import CheckpointRow
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import Desired, JobState
from mmrl.jobs.users import Users


def test_a_queued_job_is_cancelled_or_paused_at_once(job_database: Database) -> None:
    jobs = Jobs(job_database)
    one, other = submit(job_database), submit(job_database)
    assert jobs.cancel(one.id).state is JobState.CANCELLED
    assert jobs.cancel(one.id).state is JobState.CANCELLED  # again changes nothing
    assert jobs.pause(other.id).state is JobState.PAUSED
    assert join(job_database).claim() is None
    resumed = jobs.resume(other.id)
    assert (resumed.id, resumed.state, resumed.desired) == (other.id, JobState.QUEUED, Desired.RUN)


def test_a_running_job_is_asked_and_its_worker_moves_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    asked = jobs.pause(lease.job_id)
    assert (asked.state, asked.desired) == (JobState.RUNNING, Desired.PAUSE)
    assert jobs.cancel(lease.job_id).desired is Desired.CANCEL  # the stronger wish wins
    assert jobs.pause(lease.job_id).desired is Desired.CANCEL
    assert jobs.kill(lease.job_id).desired is Desired.KILL
    assert jobs.cancel(lease.job_id).desired is Desired.KILL
    worker.move(lease, JobState.STOPPING, cause="cancel")
    worker.move(lease, JobState.CANCELLED, cause="cancel")
    causes = [event.cause for event in jobs.events(lease.job_id) if event.to_state is None]
    assert causes == ["pause_requested", "cancel_requested", "kill_requested"]


def test_j07_a_cancel_after_the_end_is_refused_and_changes_nothing(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    finish(worker, lease)
    before = jobs.get(lease.job_id)
    with pytest.raises(ConflictError, match="cannot be cancelled: it is succeeded"):
        jobs.cancel(lease.job_id)
    assert jobs.get(lease.job_id) == before


def test_resuming_a_paused_job_is_a_new_attempt_of_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.move(lease, JobState.STOPPING, cause="pause")
    worker.move(lease, JobState.PAUSED, cause="pause")
    resumed = jobs.resume(lease.job_id)
    assert (resumed.id, resumed.run_dir) == (lease.job_id, lease.job.run_dir)
    again = claim(worker)
    assert (again.job_id, again.attempt, again.lease_epoch) == (lease.job_id, 2, 2)
    assert [attempt.end_reason for attempt in jobs.attempts(lease.job_id)] == ["pause", None]


def test_resuming_a_cancelled_job_makes_a_child_that_goes_on_from_its_last_checkpoint(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database, "run", tags=("a",), priority=2)
    worker = join(job_database)
    lease = start(worker)
    steps = [
        CheckpointRow(5, "/c/step-5"),
        CheckpointRow(10, "/c/step-10"),
        CheckpointRow(15, "/c/15", state="writing"),
    ]
    worker.add_checkpoints(lease, steps)
    worker.move(lease, JobState.STOPPING, cause="cancel")
    worker.move(lease, JobState.CANCELLED, cause="cancel")
    child = jobs.resume(lease.job_id)
    assert (child.parent_job_id, child.resume_checkpoint, child.state) == (lease.job_id, "/c/step-10", JobState.QUEUED)
    assert child.run_dir != lease.job.run_dir
    assert (child.config, child.tags, child.priority, child.attempt) == (lease.job.config, ("a",), 2, 0)
    assert jobs.resume(lease.job_id).id == child.id  # a second click finds the first one's job
    finish(worker, start(worker))
    with pytest.raises(ConflictError, match="cannot be resumed: it is succeeded"):
        jobs.resume(child.id)
    grandchild = jobs.resume(lease.job_id)
    assert [job.id for job in jobs.lineage(grandchild.id)] == [lease.job_id, grandchild.id]
    assert [job.id for job in jobs.children(lease.job_id)] == [child.id, grandchild.id]


def test_c10_resuming_a_job_that_has_no_checkpoint_starts_afresh(job_database: Database) -> None:
    jobs = Jobs(job_database)
    job = submit(job_database)
    jobs.cancel(job.id)
    assert jobs.resume(job.id).resume_checkpoint is None


def test_retrying_begins_where_the_job_began(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database, resume_checkpoint="/given")
    worker = join(job_database)
    lease = start(worker)
    worker.add_checkpoints(lease, [CheckpointRow(5, "/c/step-5")])
    worker.fail(lease, Failure("code", "ValueError", 1))
    assert jobs.retry(lease.job_id).resume_checkpoint == "/given"
    with pytest.raises(ConflictError, match="cannot be tried again: it is queued"):
        jobs.retry(jobs.children(lease.job_id)[0].id)


def test_members_change_their_own_jobs_and_admins_all(job_database: Database) -> None:
    users = Users(job_database)
    ann, bob, eve = (
        users.add(name, role=role) for name, role in (("ann", "member"), ("bob", "member"), ("eve", "viewer"))
    )
    job = Jobs(job_database, actor=ann).submit(new_job())
    assert job.owner_id == ann.id
    with pytest.raises(ForbiddenError, match="bob may not change this job: it takes the role admin"):
        Jobs(job_database, actor=bob).cancel(job.id)
    with pytest.raises(ForbiddenError, match="eve may not submit jobs"):
        Jobs(job_database, actor=eve).submit(new_job())
    with pytest.raises(ForbiddenError, match="bob may not administer"):
        Jobs(job_database, actor=bob).submit(new_job(owner=ann.id))
    assert Jobs(job_database, actor=ann).pause(job.id).state is JobState.PAUSED
    root = users.add("root", role="admin")
    assert Jobs(job_database, actor=root).cancel(job.id).state is JobState.CANCELLED


def test_j04_a_job_whose_worker_is_gone_can_be_ended_or_resumed_where_no_worker_is_left(job_database: Database) -> None:
    jobs = Jobs(job_database)
    worker = join(job_database)
    ids = [submit(job_database).id for _ in range(3)]
    for _ in ids:
        start(worker)
    with job_database.transaction() as connection:
        connection.execute(sa.text("UPDATE jobs SET lease_expires_at = 0"))
    assert jobs.kill(ids[0]).state is JobState.CANCELLED
    assert jobs.resume(ids[1]).state is JobState.QUEUED
    asked = jobs.cancel(ids[2])
    assert (asked.state, asked.desired) == (JobState.LOST, Desired.CANCEL)
