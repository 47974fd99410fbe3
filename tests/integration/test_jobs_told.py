"""What the database tells of jobs, on both engines: why they wait, where they are in a list, what they are called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from job_rows import join, start, submit

from mmrl.errors import NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.pools import Fleet
from mmrl.jobs.states import JobState


def test_why_a_job_waits_is_always_answered(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first = submit(job_database, "first", gpus=2, cpus=1)
    second = submit(job_database, "second")

    def why(job_id: str) -> tuple[str, int | None]:
        reason = jobs.why_pending(job_id)
        return reason.code, reason.position

    assert why(first.id) == ("no_worker", 1)
    assert "no worker for pool default" in jobs.why_pending(first.id).message
    join(job_database, gpus=("gpu-a",), cpus=1)
    assert why(first.id) == ("too_large", 1)
    assert "needs 1 CPU slot and 2 GPUs" in jobs.why_pending(first.id).message
    assert why(second.id) == ("busy", 2)
    worker = join(job_database, gpus=("gpu-b", "gpu-c"), cpus=1)
    assert why(first.id) == ("next", 1)
    lease = start(worker)
    assert (lease.job_id, why(first.id)) == (first.id, ("not_queued", None))
    third = submit(job_database, "third", gpus=2, priority=5)
    assert jobs.why_pending(third).message.endswith("too few GPUs: 0 of 2 free on one worker, needs 2")
    later = submit(job_database, available_at=datetime.now(UTC) + timedelta(hours=1))
    assert why(later.id) == ("not_before", None)
    Fleet(job_database).set_capacity("default", 1)
    assert jobs.why_pending(second).message.endswith("the pool is full: 1 of 1 jobs at once")
    wrong = submit(job_database, pool="gpuu")
    assert "no worker for pool gpuu" in jobs.why_pending(wrong).message
    assert "pools with workers: default" in jobs.why_pending(wrong).message


def test_jobs_are_found_by_id_by_parts_of_it_and_by_name(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first, second = submit(job_database, "digits"), submit(job_database, "digits")
    assert jobs.get(first.id).id == first.id
    assert jobs.get(first.short_id).id == first.id
    assert jobs.get(first.id[:35]).id == first.id
    assert jobs.get("digits").id == second.id
    with pytest.raises(NotFoundError, match="several jobs have ids like"):
        jobs.get(first.id[:6])
    with pytest.raises(NotFoundError, match="no job 'digit', neither by id nor by name; nearest: digits"):
        jobs.get("digit")


def test_lists_are_newest_first_and_come_in_pages(job_database: Database) -> None:
    jobs = Jobs(job_database)
    ids = [submit(job_database, f"job-{index}", pool="even" if index % 2 == 0 else "odd").id for index in range(7)]
    page = jobs.list(limit=3)
    assert [job.id for job in page] == ids[:3:-1]
    assert [job.id for job in jobs.list(limit=3, before=page[-1].id)] == ids[3:0:-1]
    assert [job.id for job in jobs.list(pool="odd")] == ids[5:0:-2]
    jobs.cancel(ids[2])
    assert [job.id for job in jobs.list(states=[JobState.CANCELLED])] == [ids[2]]
    assert [job.name for job in jobs.list(name="job-4")] == ["job-4"]
    assert jobs.list(kind="rl") == []


def test_a_job_can_be_described_later(job_database: Database) -> None:
    jobs = Jobs(job_database)
    job = submit(job_database, tags=("a",))
    assert jobs.describe(job.id, tags=["c", "b"]).tags == ("b", "c")
    assert jobs.describe(job.id, note="good").note == "good"
    assert jobs.get(job.id).tags == ("b", "c")
    assert [event.payload for event in jobs.events(job.id)][-1] == {"note": "good"}


def test_a_worker_that_the_database_does_not_know_is_told_so(job_database: Database) -> None:
    with pytest.raises(NotFoundError, match="knows no worker 'nobody'; start the worker anew"):
        Leases(job_database, "nobody").beat([])
