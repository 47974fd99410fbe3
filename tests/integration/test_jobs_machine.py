"""The state machine under anything that people and workers may do, in any order, on both engines.

After each step: every change that was written down is in the table and follows from the one before (no illegal
transition, no lost update), at most one lease on a job is good (no double owner), ends stay ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from job_rows import join, new_job

from mmrl.errors import ConflictError
from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Job, Lease
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import HELD, TERMINAL, TRANSITIONS, JobState, sources

INDEX = st.integers(0, 99)
CPUS, GPUS = 3, ("gpu-a", "gpu-b")
MOVES = [
    (to, cause)
    for to in JobState
    for cause in sorted({cause for targets in TRANSITIONS.values() for cause in targets.get(to, ())})
    if to not in (JobState.DRAFT, JobState.STARTING) and cause != "adopted"
]
FAILURES = [Failure("killed", "signal 9", -9), Failure("config", "bad", 2), Failure("out_of_memory", "oom", 1)]


class JobMachine(RuleBasedStateMachine):
    """Set up by `machine_of`. Each example has a pool of its own in the one database of the test."""

    database: Database
    num_examples = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).num_examples += 1
        self.pool = f"pool-{type(self).num_examples}"
        gpus = tuple(f"{self.pool}-{gpu}" for gpu in GPUS)
        self.jobs = Jobs(self.database)
        self.workers = [join(self.database, cpus=CPUS, gpus=gpus, pool=self.pool, pid=pid) for pid in (1, 2)]
        self.ids: list[str] = []
        self.leases: list[tuple[Leases, Lease]] = []
        self.seen: dict[str, Job] = {}
        self.now: dict[str, Job] = {}
        self.adopted: set[str] = set()

    @rule(gpus=st.integers(0, 2), priority=st.integers(-1, 1), after=st.lists(INDEX, max_size=2), draft=st.booleans())
    def submit(self, gpus: int, priority: int, after: list[int], draft: bool) -> None:
        waits = tuple(dict.fromkeys(self.ids[index % len(self.ids)] for index in after)) if self.ids else ()
        new = new_job(pool=self.pool, gpus=gpus, priority=priority, after=waits, max_attempts=3)
        try:
            self.ids.append(self.jobs.submit(new, as_draft=draft).id)
        except ConflictError:
            ended = [self.jobs.get(job_id).state for job_id in waits]
            assert any(state in TERMINAL and state is not JobState.SUCCEEDED for state in ended)

    @rule(number=st.integers(0, 1))
    def claim(self, number: int) -> None:
        worker = self.workers[number]
        lease = worker.claim()
        if lease is not None:
            assert lease.job.gpus == len(lease.gpus)
            self.leases.append((worker, lease))

    @precondition(lambda self: self.leases)
    @rule(index=INDEX, move=st.sampled_from(MOVES))
    def move(self, index: int, move: tuple[JobState, str]) -> None:
        """Any lease that was ever given, any change: it happens if the lease is good and the table knows it."""
        worker, lease = self._lease(index)
        before = self.jobs.get(lease.job_id)
        may = self._is_good(lease, before) and before.state in sources(*move)
        try:
            worker.move(lease, move[0], cause=move[1])
        except LeaseLostError:
            assert not may
        else:
            assert may

    @precondition(lambda self: self.leases)
    @rule(index=INDEX, failure=st.sampled_from(FAILURES))
    def fail(self, index: int, failure: Failure) -> None:
        worker, lease = self._lease(index)
        before = self.jobs.get(lease.job_id)
        try:
            worker.fail(lease, failure)
        except LeaseLostError:
            assert not (self._is_good(lease, before) and before.state in HELD)

    @precondition(lambda self: self.leases)
    @rule(index=INDEX)
    def write(self, index: int) -> None:
        worker, lease = self._lease(index)
        before = self.jobs.get(lease.job_id)
        try:
            worker.progress(lease, before.step + 1)
        except LeaseLostError:
            assert not (self._is_good(lease, before) and before.state in HELD)
        else:
            assert self.jobs.get(lease.job_id).step == before.step + 1

    @precondition(lambda self: self.leases)
    @rule(index=INDEX)
    def release(self, index: int) -> None:
        """Only after the end, as a worker does."""
        worker, lease = self._lease(index)
        if self.jobs.get(lease.job_id).state not in HELD | {JobState.LOST}:
            worker.release(lease)

    @precondition(lambda self: self.ids)
    @rule(index=INDEX, word=st.sampled_from(["cancel", "pause", "kill", "resume", "retry", "start"]))
    def ask(self, index: int, word: str) -> None:
        job_id = self.ids[index % len(self.ids)]
        before = self.jobs.get(job_id)
        ask: Callable[[str], Job] = getattr(self.jobs, word)
        try:
            after = ask(job_id)
        except ConflictError:
            return
        if after.id != job_id:
            assert after.parent_job_id == job_id
            assert before.state in (JobState.FAILED, JobState.CANCELLED)

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 1), index=INDEX)
    def lose(self, number: int, index: int) -> None:
        """A lease runs out, and somebody looks."""
        job_id = self.ids[index % len(self.ids)]
        with self.database.transaction() as connection:
            connection.execute(
                sa.text("UPDATE jobs SET lease_expires_at = 0 WHERE id = :id AND lease_expires_at IS NOT NULL"),
                {"id": job_id},
            )
            connection.execute(sa.text("UPDATE duties SET due_at = 0"))
        was_held = self.jobs.get(job_id).is_held
        assert [job.id for job in self.workers[number].reap()] == [job_id] * was_held

    @precondition(lambda self: self.leases)
    @rule(number=st.integers(0, 1), index=INDEX)
    def adopt(self, number: int, index: int) -> None:
        worker, lease = self.workers[number], self._lease(index)[1]
        before = self.jobs.get(lease.job_id)
        same = (before.lease_epoch, before.attempt) == (lease.lease_epoch, lease.attempt)
        try:
            self.leases.append((worker, worker.adopt(lease)))
            self.adopted.add(lease.job_id)
        except LeaseLostError:
            assert not (same and before.state is JobState.LOST)
        else:
            assert same
            assert before.state is JobState.LOST

    @precondition(lambda self: self.ids)
    @rule(number=st.integers(0, 1), index=INDEX, failure=st.sampled_from(FAILURES))
    def requeue(self, number: int, index: int, failure: Failure) -> None:
        job = self.jobs.get(self.ids[index % len(self.ids)])
        try:
            self.workers[number].requeue(job, failure)
        except LeaseLostError:
            assert job.state is not JobState.LOST

    @precondition(lambda self: self.ids)
    @rule()
    def let_time_pass(self) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                sa.text("UPDATE jobs SET available_at = 0 WHERE state = 'queued' AND pool = :pool"), {"pool": self.pool}
            )

    @invariant()
    def it_holds(self) -> None:
        self.now = {job.id: job for job in self.jobs.list(pool=self.pool, limit=None)}
        assert set(self.now) >= set(self.ids)
        self.ids += sorted(set(self.now) - set(self.ids))
        self.histories_are_legal_and_end_in_the_state()
        self.numbers_only_grow_and_ends_stay()
        self.a_job_has_one_owner()
        self.nothing_is_given_twice()
        self.seen = self.now

    def histories_are_legal_and_end_in_the_state(self) -> None:
        for job_id in self.ids:
            job, state = self.now[job_id], JobState.DRAFT
            for event in self.jobs.events(job_id):
                if event.to_state is None:
                    continue
                assert event.from_state is state
                assert event.cause in TRANSITIONS[state][event.to_state]
                state = event.to_state
            assert state is job.state

    def numbers_only_grow_and_ends_stay(self) -> None:
        for job_id in self.ids:
            job, before = self.now[job_id], self.seen.get(job_id)
            if before is not None:
                assert job.lease_epoch >= before.lease_epoch
                assert job.attempt >= before.attempt
                if before.is_terminal:
                    assert job == before
            assert (job.worker_id is not None) >= job.is_held
            assert (job.lease_expires_at is not None) == job.is_held

    def a_job_has_one_owner(self) -> None:
        good: dict[str, int] = {}
        for worker, lease in self.leases:
            if worker.beat([lease])[lease.job_id].is_held:
                good[lease.job_id] = good.get(lease.job_id, 0) + 1
        assert all(count == 1 for count in good.values())

    def nothing_is_given_twice(self) -> None:
        gpus, jobs = tables.gpu_leases, tables.jobs
        with self.database.reading() as connection:
            taken = list(
                connection.execute(
                    sa.select(gpus.c.gpu_uuid).where(
                        gpus.c.released_at.is_(None), gpus.c.gpu_uuid.startswith(f"{self.pool}-")
                    )
                ).scalars()
            )
            waiting = dict(
                connection.execute(sa.select(jobs.c.id, jobs.c.num_waited_for).where(jobs.c.pool == self.pool)).all()
            )
        assert len(taken) == len(set(taken))
        for job_id in self.ids:
            job = self.now[job_id]
            open_jobs = [other for other in job.after if self.now[other].state is not JobState.SUCCEEDED]
            assert waiting[job_id] == len(open_jobs)
            assert not (job.is_held and open_jobs)
        for worker in self.workers:
            held = [job for job in self.now.values() if job.is_held and job.worker_id == worker.worker_id]
            assert sum(job.cpus for job in held if job.id not in self.adopted) <= CPUS

    def _lease(self, index: int) -> tuple[Leases, Lease]:
        return self.leases[index % len(self.leases)]

    def _is_good(self, lease: Lease, job: Job) -> bool:
        return (lease.worker_id, lease.lease_epoch) == (job.worker_id, job.lease_epoch)


def machine_of(database: Database) -> Any:
    return type("Machine", (JobMachine,), {"database": database, "num_examples": 0})


def run_machine(database: Database, *, max_examples: int, steps: int) -> None:
    """Leases last, so that only `lose` ends them; what is told of a failing example is the shortest one."""
    database.settings = database.settings.model_copy(update={"lease_s": 3600.0, "retry_delay_s": 1000.0})
    limits = settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine_of(database), settings=limits)


def test_whatever_people_and_workers_do_the_table_holds(job_database: Database) -> None:
    run_machine(job_database, max_examples=6, steps=25)


@pytest.mark.slow
def test_whatever_people_and_workers_do_the_table_holds_in_long_histories(job_database: Database) -> None:
    run_machine(job_database, max_examples=60, steps=60)
