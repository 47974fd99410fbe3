"""What workers do to jobs, on both engines: claims, beats, fences, what becomes of lost jobs."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from job_rows import claim, finish, join, start, submit

from mmrl.jobs.database import Database
from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import Job
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import Desired, JobState

KILLED = Failure("killed", "ended by signal 9", -9)


def test_a_claim_raises_attempt_and_epoch_and_gives_what_the_worker_needs(job_database: Database) -> None:
    job = submit(job_database, config={"name": "probe", "kind": "noop", "seed": 7})
    worker = join(job_database)
    lease = claim(worker)
    assert (lease.job_id, lease.attempt, lease.lease_epoch, lease.gpus) == (job.id, 1, 1, ())
    assert lease.job.config == {"name": "probe", "kind": "noop", "seed": 7}
    assert (lease.job.state, lease.job.worker_id) == (JobState.STARTING, worker.worker_id)
    attempt = Jobs(job_database).attempts(job.id)[0]
    assert (attempt.token, attempt.worker_id, attempt.backend) == (lease.token, worker.worker_id, "process")
    assert worker.claim() is None


CLOCK_S = 1e-3
"""SQLite's clock is good to half of a tenth of that."""


def test_the_lease_ends_by_the_clock_of_the_database(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    before = job_database.now()
    lease = claim(worker)
    after = job_database.now()
    assert lease.job.lease_expires_at is not None
    claimed = lease.job.lease_expires_at.timestamp() - 2.0
    assert before - CLOCK_S <= claimed <= after + CLOCK_S


def test_jobs_start_by_priority_and_then_by_age(job_database: Database) -> None:
    names = [("old", 0), ("new", 0), ("urgent", 5), ("later", -1)]
    for name, priority in names:
        submit(job_database, name, priority=priority)
    worker = join(job_database)
    assert [claim(worker).job.name for _ in names] == ["urgent", "old", "new", "later"]


def test_a_raised_priority_overtakes(job_database: Database) -> None:
    submit(job_database, "first")
    second = submit(job_database, "second")
    Jobs(job_database).set_priority(second.id, 3)
    assert claim(join(job_database)).job_id == second.id


def test_a_worker_takes_no_more_than_its_cpu_slots(job_database: Database) -> None:
    for name, cpus in (("two", 2), ("three", 3), ("one", 1)):
        submit(job_database, name, cpus=cpus)
    worker = join(job_database, cpus=4)
    first = claim(worker)
    assert (first.job.name, claim(worker).job.name) == ("two", "one")
    assert worker.claim() is None
    worker.move(first, JobState.RUNNING, cause="started")
    finish(worker, first)
    assert claim(worker).job.name == "three"


def test_gpus_are_given_all_or_none_by_name_and_come_back(job_database: Database) -> None:
    submit(job_database, "pair", gpus=2)
    submit(job_database, "another", gpus=2)
    worker = join(job_database, gpus=("gpu-a", "gpu-b", "gpu-c"))
    pair = start(worker)
    assert pair.gpus == ("gpu-a", "gpu-b")
    assert worker.claim() is None
    worker.move(pair, JobState.SUCCEEDED, cause="finished")
    assert worker.claim() is None  # until it is proved that the memory is free
    worker.release(pair)
    assert claim(worker).gpus == ("gpu-a", "gpu-b")


def test_a_gpu_that_two_workers_name_is_given_once(job_database: Database) -> None:
    submit(job_database, "one", gpus=1, pool="left")
    submit(job_database, "two", gpus=1, pool="right")
    left, right = join(job_database, gpus=("gpu-a",), pool="left"), join(job_database, gpus=("gpu-a",), pool="right")
    assert claim(left).gpus == ("gpu-a",)
    assert right.claim() is None


def test_a_small_job_fills_the_gap_until_a_large_one_has_waited_too_long(job_database: Database) -> None:
    running = submit(job_database, "running", cpus=1)
    worker = join(job_database, cpus=2)
    lease = start(worker)
    assert lease.job_id == running.id
    submit(job_database, "large", cpus=2)
    submit(job_database, "small", cpus=1)
    job_database.settings = job_database.settings.model_copy(update={"hold_back_s": 0.0})
    assert worker.claim() is None
    job_database.settings = job_database.settings.model_copy(update={"hold_back_s": 600.0})
    small = start(worker)
    assert small.job.name == "small"
    for done in (lease, small):
        finish(worker, done)
    assert claim(worker).job.name == "large"


def test_a_pool_takes_no_more_than_its_capacity(job_database: Database) -> None:
    for _ in range(2):
        submit(job_database)
    Fleet(job_database).set_capacity("default", 1)
    one, other = join(job_database), join(job_database)
    lease = start(one)
    assert other.claim() is None
    finish(one, lease)
    assert other.claim() is not None


def test_a_worker_claims_only_from_its_pool_and_only_while_active(job_database: Database) -> None:
    submit(job_database, pool="gpu")
    assert join(job_database).claim() is None
    worker = join(job_database, pool="gpu")
    Fleet(job_database).drain(worker.worker_id)
    assert worker.heartbeat() == "draining"
    assert worker.claim() is None
    worker.set_state("active")
    assert worker.claim() is not None


def test_a_job_is_not_started_before_its_time(job_database: Database) -> None:
    job = submit(job_database, available_at=datetime.now(UTC) + timedelta(hours=1))
    worker = join(job_database)
    assert worker.claim() is None
    _make_due(job_database, job.id)
    assert worker.claim() is not None


def test_a_ray_job_goes_to_a_worker_that_has_ray_and_leases_none_of_its_gpus(job_database: Database) -> None:
    submit(job_database, backend="ray", cpus=16, gpus=8)
    plain = join(job_database, cpus=1)
    plain_info_only = replace(plain.worker(), backends=("process",))
    assert plain_info_only.backends == ("process",)
    lease = claim(plain)
    assert (lease.job.backend, lease.job.gpus, lease.gpus) == ("ray", 8, ())


def test_a_beat_extends_and_tells_what_people_want(job_database: Database) -> None:
    jobs = Jobs(job_database)
    ids = [submit(job_database).id for _ in range(2)]
    worker = join(job_database)
    leases = [start(worker), start(worker)]
    jobs.cancel(ids[1])
    time.sleep(0.05)
    views = worker.beat(leases)
    assert [(views[one].desired, views[one].is_held) for one in ids] == [(Desired.RUN, True), (Desired.CANCEL, True)]
    assert _expiry(jobs.get(ids[0])) > _expiry(leases[0].job)


def test_a_lease_that_ran_out_is_lost_adopted_by_its_holder_and_the_old_epoch_is_shut_out(
    job_database: Database,
) -> None:
    job = submit(job_database)
    worker, other = join(job_database), join(job_database)
    lease = start(worker)
    _expire(job_database, job.id)
    assert [found.id for found in other.reap()] == [job.id]
    view = worker.beat([lease])[job.id]
    assert (view.is_held, view.is_superseded, view.state) == (False, False, JobState.LOST)
    with pytest.raises(LeaseLostError):
        worker.progress(lease, 5)
    mine = worker.adopt(lease)
    assert (mine.lease_epoch, mine.attempt, mine.token) == (lease.lease_epoch + 1, lease.attempt, lease.token)
    assert worker.beat([mine])[job.id].is_held
    assert worker.beat([lease])[job.id].is_superseded
    with pytest.raises(LeaseLostError):
        worker.move(lease, JobState.SUCCEEDED, cause="finished")
    finish(worker, mine)


def test_of_two_workers_that_adopt_one_wins(job_database: Database) -> None:
    job = submit(job_database)
    worker, other = join(job_database), join(job_database)
    lease = start(worker)
    lost = _lose(job_database, other, job.id)
    theirs = other.adopt(lost)
    with pytest.raises(LeaseLostError):
        worker.adopt(lease)
    with pytest.raises(LeaseLostError):
        worker.release(lease) or worker.event(lease, "late")
    assert other.beat([theirs])[job.id].is_held


def test_a_stale_worker_cannot_free_gpus_that_another_has_adopted(job_database: Database) -> None:
    job = submit(job_database, gpus=1)
    worker = join(job_database, gpus=("gpu-a",))
    lease = start(worker)
    other = join(job_database, gpus=("gpu-a",))
    theirs = other.adopt(_lose(job_database, other, job.id))
    assert theirs.gpus == ("gpu-a",)
    worker.release(lease)
    submit(job_database, gpus=1)
    assert other.claim() is None
    finish(other, theirs)
    assert other.claim() is not None


def test_what_is_proved_dead_starts_again_and_its_gpus_are_free(job_database: Database) -> None:
    job = submit(job_database, gpus=1)
    worker, other = join(job_database, gpus=("gpu-a",)), join(job_database, gpus=("gpu-a",))
    lease = start(worker)
    lost = _lose(job_database, other, job.id)
    assert other.requeue(lost, Failure("worker_lost", "its worker is gone")) is JobState.QUEUED
    with pytest.raises(LeaseLostError):
        other.requeue(lost, KILLED)
    _make_due(job_database, job.id)
    again = claim(other)
    assert (again.attempt, again.lease_epoch, again.gpus) == (2, 2, ("gpu-a",))
    assert again.token != lease.token
    with pytest.raises(LeaseLostError):
        worker.move(lease, JobState.SUCCEEDED, cause="finished")


def test_reaping_is_done_by_one_worker_at_a_time(job_database: Database) -> None:
    job_database.settings = job_database.settings.model_copy(update={"lease_s": 600.0})
    submit(job_database)
    worker, other = join(job_database), join(job_database)
    lease = start(worker)
    assert other.reap() == []
    _expire(job_database, lease.job_id)
    assert worker.reap() == []  # the other has looked less than a quarter of a lease ago
    _make_due(job_database)
    assert len(worker.reap()) == 1


def test_infrastructure_failures_are_retried_until_starts_run_out(job_database: Database) -> None:
    job = submit(job_database, max_attempts=2)
    worker = join(job_database)
    assert worker.fail(start(worker), KILLED) is JobState.QUEUED
    assert worker.claim() is None  # it waits
    _make_due(job_database, job.id)
    assert worker.fail(start(worker), KILLED) is JobState.FAILED
    ended = Jobs(job_database).get(job.id)
    assert (ended.attempt, ended.error_class, ended.exit_code) == (2, "killed", -9)
    assert [attempt.end_reason for attempt in Jobs(job_database).attempts(job.id)] == ["retry", "failed"]


@pytest.mark.parametrize("error_class", ["config", "data", "code"])
def test_failures_that_would_come_back_are_not_retried(job_database: Database, error_class: str) -> None:
    submit(job_database)
    worker = join(job_database)
    failure = Failure(error_class, "bad", 2)  # type: ignore[arg-type]
    assert worker.fail(start(worker), failure) is JobState.FAILED


def test_memory_that_runs_out_twice_in_a_row_is_no_accident(job_database: Database) -> None:
    job = submit(job_database, max_attempts=5)
    worker = join(job_database)
    failure = Failure("out_of_memory", "CUDA out of memory")
    assert worker.fail(start(worker), failure) is JobState.QUEUED
    _make_due(job_database, job.id)
    assert worker.fail(start(worker), failure) is JobState.FAILED


def test_a_failure_meets_a_wish_to_cancel_or_pause(job_database: Database) -> None:
    """J07: cancel racing retry. A job that goes back to the queue obeys what people asked for meanwhile."""
    jobs = Jobs(job_database)
    worker = join(job_database)
    for ask, end in ((jobs.cancel, JobState.CANCELLED), (jobs.pause, JobState.PAUSED)):
        submit(job_database)
        lease = start(worker)
        ask(lease.job_id)
        assert worker.fail(lease, KILLED) is end
        states = [event.to_state for event in jobs.events(lease.job_id) if event.to_state]
        assert states[-2:] == [JobState.QUEUED, end]


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled_once_it_is_proved_dead(job_database: Database) -> None:
    """J04: cancel works while the runner is gone."""
    jobs = Jobs(job_database)
    job = submit(job_database)
    worker = join(job_database)
    start(worker)
    lost = _lose(job_database, worker, job.id)
    assert jobs.cancel(job.id).state is JobState.LOST
    assert worker.requeue(lost, KILLED) is JobState.CANCELLED


def test_what_is_launched_can_be_found_again(job_database: Database) -> None:
    job = submit(job_database)
    worker = join(job_database)
    lease = claim(worker)
    worker.launched(lease, external_id=f"mmrl-{job.id}-1", host="host", boot_id="boot", log_uri="logs/1")
    worker.launched(lease, pid=123, pid_start_time=4.5, pgid=123)
    worker.move(lease, JobState.RUNNING, cause="started")
    lost = _lose(job_database, worker, job.id)
    found, attempt = worker.lost_jobs(host="host")[0]
    assert (found.id, lost.state) == (job.id, JobState.LOST)
    assert (attempt.pid, attempt.pid_start_time, attempt.boot_id) == (123, 4.5, "boot")
    assert attempt.external_id == f"mmrl-{job.id}-1"
    assert worker.lost_jobs(host="elsewhere") == []


def test_a_move_that_the_table_does_not_know_writes_nothing(job_database: Database) -> None:
    job = submit(job_database)
    worker = join(job_database)
    lease = claim(worker)
    with pytest.raises(LeaseLostError):
        worker.move(lease, JobState.SUCCEEDED, cause="finished")  # from starting
    with pytest.raises(ValueError, match="no job becomes succeeded by 'luck'"):
        worker.move(lease, JobState.SUCCEEDED, cause="luck")
    assert Jobs(job_database).get(job.id).state is JobState.STARTING


def test_an_end_is_never_changed(job_database: Database) -> None:
    """J07: one terminal state, whatever comes after it."""
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    finish(worker, lease)
    before = jobs.get(lease.job_id)
    for late in (
        lambda: worker.move(lease, JobState.FAILED, cause="failed"),
        lambda: worker.move(lease, JobState.STOPPING, cause="cancel"),
        lambda: worker.fail(lease, KILLED),
        lambda: worker.progress(lease, 99),
    ):
        with pytest.raises(LeaseLostError):
            late()
    assert jobs.get(lease.job_id) == before


def test_each_change_of_state_is_an_event_and_a_message(job_database: Database) -> None:
    from mmrl.jobs.outbox import Outbox

    job = submit(job_database)
    worker = join(job_database)
    finish(worker, start(worker))
    events = Jobs(job_database).events(job.id)
    assert [(event.from_state, event.to_state, event.cause) for event in events] == [
        (JobState.DRAFT, JobState.QUEUED, "submit"),
        (JobState.QUEUED, JobState.STARTING, "claim"),
        (JobState.STARTING, JobState.RUNNING, "started"),
        (JobState.RUNNING, JobState.SUCCEEDED, "finished"),
    ]
    outbox = Outbox(job_database)
    pending = outbox.pending()
    assert [message.event.id for message in pending] == [event.id for event in events]
    outbox.mark_sent([events[0].id, events[1].id])
    outbox.mark_failed([events[2].id])
    assert [(message.event.id, message.tries) for message in outbox.pending()] == [
        (events[2].id, 1),
        (events[3].id, 0),
    ]
    assert Jobs(job_database).events(job.id, after=events[2].id) == events[3:]


def _expiry(job: Job) -> datetime:
    assert job.lease_expires_at is not None
    return job.lease_expires_at


def _expire(database: Database, job_id: str) -> None:
    """As if nobody had beaten for a lease."""
    _set(database, "UPDATE jobs SET lease_expires_at = lease_expires_at - 1000 WHERE id = :id", id=job_id)


def _make_due(database: Database, job_id: str = "") -> None:
    """As if the time for which a job, or the look for expired leases, has to wait had passed."""
    _set(database, "UPDATE jobs SET available_at = 0 WHERE id = :id", id=job_id)
    _set(database, "UPDATE duties SET due_at = 0")


def _set(database: Database, statement: str, **values: str) -> None:
    with database.transaction() as connection:
        connection.execute(sa.text(statement), values)


def _lose(database: Database, worker: Leases, job_id: str) -> Job:
    _expire(database, job_id)
    lost = worker.reap()
    assert [job.id for job in lost] == [job_id]
    return lost[0]
