"""Whether anything of a job ever began, as its record tells, on both engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from job_rows import claim, join, submit

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import JobState
from mmrl.jobs.worker.processes import host_name

Story = Callable[[Leases, Lease], object]


def given_up(leases: Leases, lease: Lease) -> None:
    leases.move(lease, JobState.STOPPING, cause="cancel")
    leases.move(lease, JobState.CANCELLED, cause="cancel")


def run_to_its_end(leases: Leases, lease: Lease) -> None:
    leases.started(lease, log_uri="/runs/x/attempt-1/logs", host="elsewhere", pid=1)
    given_up(leases, lease)


def second_attempt_given_up(leases: Leases, lease: Lease) -> None:
    leases.started(lease, log_uri="/runs/x/attempt-1/logs")
    leases.move(lease, JobState.QUEUED, cause="preempted")
    given_up(leases, claim(leases))


def lost(leases: Leases, lease: Lease) -> None:
    leases.bury(lease.worker_id)


def lost_here(leases: Leases, lease: Lease) -> None:
    attempts = tables.attempts
    with leases.database.transaction() as connection:
        connection.execute(attempts.update().where(attempts.c.job_id == lease.job_id).values(host=host_name()))
    lost(leases, lease)


@pytest.mark.parametrize(
    ("story", "may_have_begun"),
    [
        (lambda *_: None, False),
        (given_up, False),
        (lambda leases, lease: leases.fail(lease, Failure("config", "no such checkpoint")), False),
        (lambda leases, lease: leases.move(lease, JobState.QUEUED, cause="preempted"), False),
        (lambda leases, lease: leases.launched(lease, log_uri="/runs/x/attempt-1/logs"), True),
        (lambda leases, lease: leases.move(lease, JobState.RUNNING, cause="started"), True),
        (run_to_its_end, True),
        (second_attempt_given_up, True),
        (lost, True),
        (lost_here, False),
    ],
    ids=[
        "waits", "given up", "refused", "queued again", "on a cluster", "an older record", "ran", "second attempt",
        "lost elsewhere", "lost here",
    ],
)  # fmt: skip
def test_the_record_tells_whether_anything_of_a_job_began(
    story: Story, may_have_begun: bool, job_database: Database
) -> None:
    other, job = submit(job_database, "other"), submit(job_database, priority=1)
    leases = join(job_database)
    story(leases, claim(leases))
    jobs = Jobs(job_database)
    assert jobs.may_have_begun(job.id) is may_have_begun
    assert not jobs.may_have_begun(other.id)
