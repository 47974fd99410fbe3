"""Jobs by filter and page, and children that are made once; on both engines."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from job_rows import finish, join, new_job, start, submit

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.jobs.retry import Failure
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import JobState
from mmrl.jobs.users import Users


def _names(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs]


def test_filters_go_together(job_database: Database) -> None:
    jobs = Jobs(job_database)
    ann = Users(job_database).add("ann", role="member")
    submit(job_database, "digits", tags=("baseline", "a_b"), note="First try")
    submit(job_database, "charts", tags=("baseline",), pool="large")
    Jobs(job_database, actor=ann).submit(new_job("tables", tags=("axb",)))
    worker = join(job_database)
    finish(worker, start(worker))

    def found(**wanted: object) -> list[str]:
        return _names(jobs.search(JobFilter(**wanted), limit=10))  # type: ignore[arg-type]

    assert found() == ["tables", "charts", "digits"]
    assert found(states=(JobState.SUCCEEDED, JobState.FAILED)) == ["digits"]
    assert found(tags=("baseline",)) == ["charts", "digits"]
    assert found(tags=("baseline", "a_b")) == ["digits"]
    assert found(tags=("base",)) == []
    assert found(text="FIRST") == ["digits"]
    assert found(text="a_b") == ["digits"]
    assert found(text="100%") == []
    assert found(owner=ann.id) == ["tables"]
    assert found(pool="large", tags=("baseline",)) == ["charts"]
    assert found(kinds=("noop",), text="tab") == ["tables"]
    assert jobs.count(JobFilter(tags=("baseline",))) == 2
    assert _names(jobs.list(tags=["baseline"], text="char")) == ["charts"]


def test_age_is_counted_by_the_databases_clock(job_database: Database) -> None:
    jobs = Jobs(job_database)
    old, new = submit(job_database, "old"), submit(job_database, "new")
    with job_database.transaction() as connection:
        created = {"created_at": tables.jobs.c.created_at - 3600}
        connection.execute(tables.jobs.update().where(tables.jobs.c.id == old.id).values(created))
    assert _names(jobs.search(JobFilter(max_age_s=1800), limit=9)) == [new.name]
    assert jobs.count(JobFilter(max_age_s=7200)) == 2


def test_pages_go_down_and_up_by_id(job_database: Database) -> None:
    jobs = Jobs(job_database)
    ids = [submit(job_database, f"job-{number}").id for number in range(5)]
    first = jobs.search(JobFilter(), limit=2)
    assert _names(first) == ["job-4", "job-3"]
    second = jobs.search(JobFilter(), limit=2, before=first[-1].id)
    assert _names(second) == ["job-2", "job-1"]
    assert _names(jobs.search(JobFilter(), limit=2, after=second[0].id)) == ["job-4", "job-3"]
    assert _names(jobs.search(JobFilter(), limit=2, after=ids[0])) == ["job-2", "job-1"]


def test_choices_are_what_jobs_have(job_database: Database) -> None:
    Users(job_database).add("idle", role="member")
    job = submit(job_database, tags=("b", "a"))
    submit(job_database, tags=("a",), pool="large")
    choices = Jobs(job_database).choices()
    assert (choices.kinds, choices.pools, choices.tags) == (("noop",), ("default", "large"), ("a", "b"))
    assert list(choices.owners) == [job.owner_id]


@pytest.mark.parametrize("again", ["retry", "resume"])
def test_a_child_of_one_key_is_made_once_even_after_it_has_ended(job_database: Database, again: str) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.fail(lease, Failure("code", "it broke"))
    worker.release(lease)
    jobs = Jobs(job_database)
    make = getattr(jobs, again)
    child = make(lease.job_id, idempotency_key="click-1")
    finish(worker, start(worker))
    assert jobs.get(child.id).state is JobState.SUCCEEDED
    assert make(lease.job_id, idempotency_key="click-1").id == child.id
    assert make(lease.job_id, idempotency_key="click-2").id != child.id


def test_recent_events_are_the_last_ones_in_order(job_database: Database) -> None:
    job = submit(job_database)
    jobs = Jobs(job_database)
    for note in ("a", "b", "c"):
        jobs.describe(job.id, note=note)
    assert [event.payload["note"] for event in jobs.recent_events(job.id, 2)] == ["b", "c"]


def test_the_filter_reads_no_more_rows_than_its_page(job_database: Database) -> None:
    for number in range(30):
        submit(job_database, f"job-{number}")
    seen: list[int] = []

    @sa.event.listens_for(job_database.engine, "after_cursor_execute")
    def count(connection, cursor, statement, *_):  # type: ignore[no-untyped-def]
        if "jobs.config" in statement:
            seen.append(statement.count("LIMIT"))

    assert len(Jobs(job_database).search(JobFilter(text="job"), limit=4)) == 4
    assert seen == [1]
