"""The job database under processes that want the same at the same moment, on both engines."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter

import pytest
import sqlalchemy as sa
from job_claimers import cancel_or_claim, claim_all, claim_one, race_to_the_end, submit_one, together
from job_rows import claim, join, new_job, start, submit

from mmrl.jobs.database import Database
from mmrl.jobs.errors import DatabaseUnavailableError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.states import JobState


@pytest.mark.parametrize(
    ("num_claimers", "num_jobs"), [(5, 100), pytest.param(20, 1000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_each_of_many_jobs_is_run_once_whoever_claims(
    job_url: str, job_database: Database, num_claimers: int, num_jobs: int
) -> None:
    """J02 at length: claimers in processes of their own, each of which runs one job at a time to its end."""
    ids = {submit(job_database, idempotency_key=str(index)).id for index in range(num_jobs)}
    claimed = Counter(job_id for jobs in together(claim_all, job_url, num_claimers) for job_id in jobs)
    assert claimed == Counter(ids)
    jobs = Jobs(job_database).list(limit=None)
    assert {(job.state, job.attempt, job.lease_epoch) for job in jobs} == {(JobState.SUCCEEDED, 1, 1)}
    with job_database.reading() as connection:
        events = connection.execute(sa.text("SELECT cause, count(*) FROM job_events GROUP BY cause")).all()
        attempts = connection.execute(sa.text("SELECT count(*) FROM attempts")).scalar_one()
    assert dict(events) == dict.fromkeys(("submit", "claim", "started", "finished"), num_jobs)
    assert attempts == num_jobs


def test_j02_of_eight_processes_one_gets_the_only_job(job_url: str, job_database: Database) -> None:
    job = submit(job_database)
    found = together(claim_one, job_url, 8)
    assert Counter(found) == Counter([job.id] + [None] * 7)
    assert Jobs(job_database).get(job.id).attempt == 1


def test_two_jobs_that_race_for_the_last_gpu_get_it_one_after_the_other(job_url: str, job_database: Database) -> None:
    ids = {submit(job_database, gpus=1).id for _ in range(2)}
    found = [job_id for job_id in together(claim_one, job_url, 4, ("gpu-a",)) if job_id is not None]
    assert len(found) == 1
    waiting = Jobs(job_database).get((ids - set(found)).pop())
    assert waiting.state is JobState.QUEUED
    with Database.open(job_url) as patient:  # its leases last, so that the workers count as alive
        assert "too few GPUs: 0 of 1 free" in Jobs(patient).why_pending(waiting).message


def test_j01_a_job_submitted_twice_at_once_is_one_job(job_url: str, job_database: Database) -> None:
    found = together(submit_one, job_url, 5)
    assert len(set(found)) == 1
    assert [job.id for job in Jobs(job_database).list()] == [found[0]]


def test_j07_cancel_finish_and_retry_at_once_end_in_one_way(job_url: str, job_database: Database) -> None:
    """Whoever comes first decides; the others are told so; what ended stays as it is."""
    job_database.settings = job_database.settings.model_copy(update={"lease_s": 600.0})
    for _ in range(2):
        submit(job_database)
        worker = join(job_database)
        lease = start(worker)
        found = together(race_to_the_end, job_url, 4, lease.job_id, lease)
        job = Jobs(job_database).get(lease.job_id)
        states = [event.to_state for event in Jobs(job_database).events(job.id) if event.to_state in ENDS]
        if found[0] == JobState.SUCCEEDED:
            assert (job.state, found[1], states) == (JobState.SUCCEEDED, "LeaseLostError", [JobState.SUCCEEDED])
            continue
        # The failure came first: the job was queued again, and cancelled there, or by the failure itself.
        assert found[0] == "LeaseLostError"
        assert (job.state, states) == (JobState.CANCELLED, [JobState.CANCELLED])


ENDS = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


def test_j07_cancel_and_claim_at_once_leave_a_job_cancelled_or_asked(job_url: str, job_database: Database) -> None:
    job = submit(job_database)
    found = together(cancel_or_claim, job_url, 4, job.id)
    after = Jobs(job_database).get(job.id)
    if "claimed" in found:
        assert (after.state, after.desired) == (JobState.STARTING, "cancel")
        assert found.count("claimed") == 1
    else:
        assert after.state is JobState.CANCELLED


@pytest.mark.parametrize("job_url", ["sqlite"], indirect=True)
def test_j11_a_claim_waits_for_a_lock_and_gives_up_within_bounds_with_nothing_written(
    job_url: str, job_database: Database
) -> None:
    submit(job_database)
    worker = join(job_database)
    patient = job_database.settings.model_copy(update={"lock_wait_s": 60.0})
    with Database.open(job_url, settings=patient) as database, _Locked(job_url, seconds=10.0):
        begin = time.monotonic()
        assert claim(type(worker)(database, worker.worker_id)).attempt == 1
        assert time.monotonic() - begin > 5.0
    submit(job_database)
    hasty = JobsSettings(lock_wait_s=0.3)
    with Database.open(job_url, settings=hasty) as database, _Locked(job_url, seconds=2.0):
        with pytest.raises(DatabaseUnavailableError, match=r"stayed locked for 0\.3 s; nothing was written"):
            type(worker)(database, worker.worker_id).claim()
        assert len(Jobs(database).list(states=[JobState.QUEUED])) == 1  # reading goes on
    assert claim(worker).attempt == 1


@pytest.mark.postgres
@pytest.mark.parametrize("job_url", ["postgresql"], indirect=True)
def test_j11_a_worker_that_was_stopped_in_a_transaction_holds_nobody_up_for_long(
    job_url: str, job_database: Database
) -> None:
    """As SIGSTOP in the middle of a claim: the server ends the transaction, and the job is claimed by another."""
    submit(job_database)
    stopped, other = join(job_database), join(job_database)
    hasty = JobsSettings(lock_wait_s=4.0)
    with Database.open(job_url, settings=hasty) as database:
        with pytest.raises(DatabaseUnavailableError):
            _stop_in_a_transaction(database)
        lease = claim(other)
        assert (lease.attempt, Jobs(database).get(lease.job_id).note) == (1, None)
    assert stopped.claim() is None


def _stop_in_a_transaction(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(sa.text("SELECT id FROM jobs FOR UPDATE"))
        time.sleep(3.0)
        connection.execute(sa.text("UPDATE jobs SET note = 'too late'"))


class _Locked:
    """Another program that holds SQLite's write lock."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self._file, self._seconds = url.removeprefix("sqlite:///"), seconds
        self._has_lock = threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._has_lock.wait(10)

    def __exit__(self, *_error: object) -> None:
        self._thread.join()

    def _hold(self) -> None:
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=10)
        connection.execute("BEGIN IMMEDIATE")
        self._has_lock.set()
        time.sleep(self._seconds)
        connection.execute("ROLLBACK")
        connection.close()


def test_a_fast_clicker_gets_one_job_for_each_key(job_database: Database) -> None:
    """K05: two clicks in a moment, by two threads of one process."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(Jobs(job_database).submit(new_job(idempotency_key="k")).id))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
