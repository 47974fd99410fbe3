"""Jobs that wait for other jobs, on both engines."""

from __future__ import annotations

import pytest
from job_rows import claim, finish, join, start, submit

from mmrl.errors import ConflictError, NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import JobState


def test_a_job_waits_for_those_before_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first, second = submit(job_database, "first"), submit(job_database, "second")
    third = submit(job_database, "third", after=(first.id, second.id), priority=9)
    assert third.after == tuple(sorted((first.id, second.id)))
    worker = join(job_database)
    one = start(worker)
    finish(worker, one)
    assert jobs.why_pending(third).message == f"waits for job {second.id} (second), which is queued"
    finish(worker, start(worker))
    assert claim(worker).job_id == third.id
    assert submit(job_database, after=(first.id,)).state is JobState.QUEUED


def test_what_waits_for_a_job_that_failed_is_cancelled_and_comes_back_with_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first = submit(job_database, "first")
    second = submit(job_database, "second", after=(first.id,))
    third = submit(job_database, "third", after=(second.id, first.id))
    worker = join(job_database)
    worker.fail(start(worker), Failure("config", "no such key", 2))
    for job_id in (second.id, third.id):
        ended = jobs.get(job_id)
        assert (ended.state, ended.error_class) == (JobState.CANCELLED, "dependency")
    assert jobs.get(second.id).error_message == f"job {first.id}, which it waits for, has failed"
    with pytest.raises(ConflictError, match="has ended as failed and can succeed no more"):
        submit(job_database, after=(first.id,))
    again = jobs.retry(first.id)
    by_name = {job.name: job for job in jobs.list(states=[JobState.QUEUED])}
    assert set(by_name) == {"first", "second", "third"}
    assert by_name["second"].after == (again.id,)
    assert by_name["third"].after == tuple(sorted((by_name["second"].id, again.id)))
    assert by_name["third"].parent_job_id == third.id
    names = []
    for _ in range(3):
        lease = start(worker)
        names.append(lease.job.name)
        finish(worker, lease)
    assert names == ["first", "second", "third"]


def test_an_unknown_job_cannot_be_waited_for(job_database: Database) -> None:
    with pytest.raises(NotFoundError, match="after: no job nobody"):
        submit(job_database, after=("nobody",))
