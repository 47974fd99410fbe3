"""Workers, trainers, machines and databases that fail at the worst moment: no run is lost, none runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from job_site import LEASE_S, Site, open_site, open_sqlite_site

from mmrl.jobs import tables
from mmrl.jobs.states import JobState
from mmrl.jobs.worker.processes import ProcessIdentity, boot_id, send
from mmrl.runs.reader import RunReader
from mmrl.trainer.noop import noop_value

BOTH = pytest.mark.parametrize(
    "job_url", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.slow])], indirect=True
)


@pytest.fixture
def site(job_url: str, tmp_path: Path) -> Iterator[Site]:
    with open_site(job_url, tmp_path / "home") as site:
        yield site


def check_whole(site: Site, run_dir: str, *, steps: int) -> None:
    """The surviving line has every step once, with the values of an unbroken run, in the directory and in the index."""
    rows = RunReader(Path(run_dir)).metrics()
    assert {row.step: row.values["noop/value"] for row in rows} == {
        step: noop_value(0, step) for step in range(1, steps + 1)
    }


def check_index(site: Site, job_id: str, *, steps: int) -> None:
    points = site.jobs.metrics(job_id, ["noop/value"], max_points=10_000)["noop/value"]
    assert [point.step for point in points] == list(range(1, steps + 1))
    assert [point.value for point in points] == [noop_value(0, step) for step in range(1, steps + 1)]


@BOTH
def test_j04_a_worker_killed_in_the_middle_leaves_a_run_that_the_next_one_adopts(site: Site) -> None:
    job = site.submit_held(at=6, steps=9)
    site.worker()
    site.worker()
    site.wait_for_step(job, 5)
    site.until(lambda: len(site.worker_ids()) == 2)
    trainer = site.trainer(job)
    site.kill_worker(site.holder(job))
    killed_at = time.monotonic()
    site.until(lambda: ("adopted", "running") in site.transitions(job))
    assert time.monotonic() - killed_at < 1.5 * LEASE_S
    assert site.trainer(job) == trainer, "the same processes go on"
    site.open_gate()
    done = site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, done.lease_epoch, done.exit_code) == (1, 2, 0)
    check_whole(site, job.run_dir, steps=9)
    check_index(site, job.id, steps=9)


@BOTH
def test_j04_a_cancel_while_no_worker_lives_is_obeyed_by_the_one_that_adopts(site: Site) -> None:
    job = site.submit_held(at=4, steps=9)
    first = site.worker()
    site.wait_for_step(job, 3)
    site.kill_worker(first)
    site.jobs.cancel(job.id)
    site.worker("--until-idle")
    done = site.wait(job, JobState.CANCELLED)
    assert not site.trainer(job)
    assert done.exit_code == 7
    assert RunReader(Path(job.run_dir)).checkpoints(), "there was time for a checkpoint"


@BOTH
def test_a_worker_killed_between_claim_and_start_costs_a_start_and_nothing_else(site: Site) -> None:
    job = site.submit(steps=3)
    site.worker(faults="before_submit").wait(timeout=30)
    assert site.jobs.get(job.id).state is JobState.STARTING
    site.worker("--until-idle")
    done = site.wait(job, JobState.SUCCEEDED)
    assert done.attempt == 2
    assert not (Path(job.run_dir) / "attempt-1" / "events.jsonl").exists()
    check_whole(site, job.run_dir, steps=3)


@BOTH
def test_a_worker_killed_between_start_and_note_leaves_one_trainer_that_is_found_again(site: Site) -> None:
    job = site.submit_held(at=2, steps=9)
    site.worker(faults="before_external_id").wait(timeout=30)
    assert site.jobs.attempts(job.id)[0].pid is None
    site.worker("--until-idle")
    site.until(lambda: ("adopted", "running") in site.transitions(job))
    site.open_gate()
    done = site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, [attempt.attempt for attempt in site.jobs.attempts(job.id)]) == (1, [1])
    assert RunReader(Path(job.run_dir)).attempts() == [1]
    check_whole(site, job.run_dir, steps=9)


@BOTH
def test_j05_a_run_that_ended_while_nobody_watched_is_not_run_again(site: Site) -> None:
    """Outputs done, worker killed before it wrote the state."""
    job = site.submit(steps=3)
    site.worker(faults="before_the_end_is_written").wait(timeout=30)
    assert site.jobs.get(job.id).state is JobState.RUNNING
    site.worker("--until-idle")
    done = site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, done.exit_code, done.step) == (1, 0, 3)
    check_index(site, job.id, steps=3)


@BOTH
def test_a_worker_that_slept_past_its_lease_writes_nothing_for_what_another_adopted(site: Site) -> None:
    job = site.submit_held(at=4, steps=9)
    sleeper = site.worker()
    site.wait_for_step(job, 3)
    site.worker()
    site.until(lambda: len(site.worker_ids()) == 2)
    site.freeze(sleeper)
    slept_at = time.monotonic()
    site.until(lambda: ("adopted", "running") in site.transitions(job))
    assert time.monotonic() - slept_at < 1.5 * LEASE_S
    trainer = site.trainer(job)
    sleeper.send_signal(signal.SIGCONT)
    site.until(lambda: "another worker has adopted the run" in site.log(0))
    time.sleep(3 * 0.2)
    assert site.trainer(job) == trainer, "a healthy trainer that was adopted is not touched"
    asleep, awake = site.worker_ids()
    actors = [event.actor for event in site.jobs.events(job.id)]
    taken = actors.index(f"worker:{awake}")
    assert f"worker:{asleep}" not in actors[taken:]
    assert site.jobs.get(job.id).worker_id == awake
    site.open_gate()
    site.wait(job, JobState.SUCCEEDED)
    check_index(site, job.id, steps=9)


@pytest.mark.slow
@BOTH
def test_a_sleeper_whose_job_was_started_anew_ends_its_own_trainer(site: Site) -> None:
    """The trainer of attempt 1 sleeps with its worker; attempt 2 has the run when both wake."""
    job = site.submit_held(at=13, steps=20, checkpoint_every=5)
    sleeper = site.worker()
    site.wait_for_step(job, 12)
    old = site.trainer(job)
    for process in old:
        os.kill(process.pid, signal.SIGSTOP)
    site.freeze(sleeper)
    _pretend_other_host(site, job.id)
    site.worker()
    site.wait_for_step(job, 2, attempt=2)
    send(old, signal.SIGCONT)
    sleeper.send_signal(signal.SIGCONT)
    site.until(lambda: not any(process.is_alive for process in old))
    assert site.jobs.get(job.id).attempt == 2
    owner = (Path(job.run_dir) / "owner").read_text()
    assert '"attempt": 2' in owner


@BOTH
def test_a_trainer_killed_in_a_checkpoint_goes_on_from_the_whole_one_before(site: Site) -> None:
    job = site.submit(steps=20, step_s=0.02, checkpoint_every=5, checkpoint_s=0.4)
    site.worker("--until-idle")
    root = Path(job.run_dir) / "checkpoints"
    site.until(lambda: (root / "step-000005").exists() and list(root.glob(".step-000010.*")))
    for process in site.trainer(job):
        os.kill(process.pid, signal.SIGKILL)
    done = site.wait(job, JobState.SUCCEEDED)
    assert done.attempt == 2
    assert site.jobs.attempts(job.id)[0].end_reason == "retry"
    assert site.jobs.attempts(job.id)[1].first_step == 5
    check_whole(site, job.run_dir, steps=20)
    check_index(site, job.id, steps=20)
    known = [(point.step, point.state) for point in site.jobs.checkpoints(job.id)]
    assert known == [(5, "complete"), (10, "complete"), (15, "complete"), (20, "complete")]


def test_a_run_that_fails_by_itself_is_not_started_again(job_site: Site) -> None:
    job = job_site.submit(steps=3, fail_at_step=2, exit_code=1, failure="ValueError: no such column")
    job_site.worker("--until-idle")
    done = job_site.wait(job, JobState.FAILED)
    assert (done.attempt, done.error_class, done.error_message) == (1, "code", "ValueError: no such column")


@pytest.mark.slow
@BOTH
def test_what_a_run_says_and_measures_in_bytes_that_no_database_takes_ends_it_all_the_same(site: Site) -> None:
    """NUL is refused by PostgreSQL, half a surrogate pair by both."""
    job = site.submit_held(at=2, steps=3, fail_at_step=3, failure="before\0after")
    worker = site.worker("--until-idle")
    site.wait_for_step(job, 1)
    with (Path(job.run_dir) / "attempt-1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "reward/\\u0000\\ud800": 0.5}\n')
    with (Path(job.run_dir) / "attempt-1" / "events.jsonl").open("a") as file:
        file.write('{"kind": "warning", "message": "\\u0000\\ud800"}\n')
    site.open_gate()
    done = site.wait(job, JobState.FAILED)
    assert done.error_message == "before\\x00after"
    assert site.jobs.metrics(job.id, ["reward/\\x00\\ud800"])["reward/\\x00\\ud800"][0].value == 0.5
    assert "warning" in [event.cause for event in site.jobs.events(job.id)]
    assert worker.wait(timeout=30) == 0


def test_a_job_that_cannot_be_started_takes_no_worker_with_it(job_site: Site) -> None:
    """Its run directory is no path at all; it came into the database past every check."""
    job = job_site.submit(job={"max_attempts": 2})
    with job_site.database.transaction() as connection:
        connection.execute(tables.jobs.update().where(tables.jobs.c.id == job.id).values(run_dir="/no\0path"))
    good = job_site.submit(steps=1)
    worker = job_site.worker("--until-idle")
    assert "embedded null byte" in (job_site.wait(job, JobState.FAILED).error_message or "")
    job_site.wait(good, JobState.SUCCEEDED)
    assert worker.wait(timeout=30) == 0


def test_memory_that_runs_out_twice_is_no_accident(job_site: Site) -> None:
    job = job_site.submit(steps=2, fail_at_step=1, exit_code=6, failure="CUDA out of memory: tried to allocate 2 GiB")
    job_site.worker("--until-idle")
    done = job_site.wait(job, JobState.FAILED)
    assert (done.attempt, done.error_class) == (2, "out_of_memory")


@pytest.fixture
def job_site(tmp_path: Path, sqlite_template: Path) -> Iterator[Site]:
    """Where the engine does not matter."""
    with open_sqlite_site(sqlite_template, tmp_path) as site:
        yield site


def test_a_child_that_writes_a_hundred_megabytes_to_stderr_does_not_stall(job_site: Site) -> None:
    job = job_site.submit(steps=2, stderr_mb=100)
    job_site.worker("--until-idle")
    job_site.wait(job, JobState.SUCCEEDED)
    assert (Path(job.run_dir) / "attempt-1" / "logs" / "stderr.log").stat().st_size > 100_000_000


def test_j06_a_job_is_cancelled_only_when_all_its_processes_are_gone(job_site: Site) -> None:
    """Two processes of the run heed no SIGTERM, and neither does the trainer."""
    job = job_site.submit_held(at=3, steps=9, children=2, ignore_sigterm=True)
    job_site.worker(MMRL_JOBS_GRACE_S="0.5")
    job_site.wait_for_step(job, 2)
    assert len(job_site.trainer(job)) == 4, "a shell, the trainer and its two"
    job_site.jobs.cancel(job.id)
    job_site.wait(job, JobState.STOPPING)
    assert job_site.trainer(job)
    done = job_site.wait(job, JobState.CANCELLED)
    assert not job_site.trainer(job)
    assert done.exit_code == 137


def test_j06_gpus_are_given_back_only_when_their_memory_is_free(job_site: Site) -> None:
    """A process outside of the job holds memory of the GPU (NVML is simulated): the job stays in `stopping`."""
    gpus = job_site.home / "gpus.json"
    gpus.write_text('{"GPU-a": []}')
    job = job_site.submit_held(at=2, steps=9, job={"gpus": 1})
    waiting = job_site.submit(steps=1, job={"gpus": 1})
    job_site.worker("--gpus", "all", MMRL_SIMULATED_GPUS=str(gpus))
    job_site.wait_for_step(job, 1)
    gpus.write_text('{"GPU-a": [4242]}')
    job_site.jobs.kill(job.id)
    job_site.until(lambda: "gpu_memory_held" in [event.cause for event in job_site.jobs.events(job.id)])
    time.sleep(0.5)
    assert job_site.jobs.get(job.id).state is JobState.STOPPING
    assert job_site.jobs.get(waiting.id).state is JobState.QUEUED
    gpus.write_text('{"GPU-a": []}')
    job_site.wait(job, JobState.CANCELLED)
    job_site.wait(waiting, JobState.SUCCEEDED)


@pytest.mark.slow
def test_a_gpu_of_a_lost_job_that_was_killed_is_free_again_once_nothing_is_on_it(job_site: Site) -> None:
    gpus = job_site.home / "gpus.json"
    gpus.write_text('{"GPU-a": []}')
    job = job_site.submit_held(at=2, steps=9, job={"gpus": 1})
    worker = job_site.worker("--gpus", "all", MMRL_SIMULATED_GPUS=str(gpus))
    job_site.wait_for_step(job, 1)
    job_site.kill_worker(worker)
    with job_site.database.transaction() as connection:
        connection.execute(tables.jobs.update().values(state="lost", lease_expires_at=None))
    assert job_site.jobs.kill(job.id).state is JobState.CANCELLED
    waiting = job_site.submit(steps=1, job={"gpus": 1})
    job_site.worker("--gpus", "all", MMRL_SIMULATED_GPUS=str(gpus))
    job_site.wait(waiting, JobState.SUCCEEDED)
    assert job_site.trainer(job) == [], "the orphan was ended too"


def test_another_process_with_the_number_of_a_dead_trainer_is_left_alone(job_site: Site) -> None:
    """The recorded number is alive, but it is not the process that was started."""
    job = job_site.submit_held(at=3, steps=9)
    worker = job_site.worker()
    job_site.wait_for_step(job, 2)
    job_site.kill_worker(worker)
    for process in job_site.trainer(job):
        os.kill(process.pid, signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        _set_attempt(job_site, job.id, pid=stranger.pid, pgid=stranger.pid)
        job_site.worker()
        job_site.wait_for_step(job, 2, attempt=2)
        job_site.jobs.kill(job.id)
        job_site.wait(job, JobState.CANCELLED)
        assert stranger.poll() is None
        stranger.kill()


def test_after_a_reboot_nothing_that_bears_an_old_number_is_taken_for_the_run(job_site: Site) -> None:
    """The trainer's number is alive and even started at the same second, under another boot."""
    job = job_site.submit_held(at=9, steps=10, checkpoint_every=3)
    worker = job_site.worker()
    job_site.wait_for_step(job, 8)
    job_site.kill_worker(worker)
    for process in job_site.trainer(job):
        os.kill(process.pid, signal.SIGKILL)
    _set_attempt(job_site, job.id, boot_id="an-earlier-boot")
    assert boot_id() != "an-earlier-boot"
    assert not ProcessIdentity(os.getpid(), 1.0, "an-earlier-boot").is_alive
    job_site.open_gate()
    job_site.worker("--until-idle")
    done = job_site.wait(job, JobState.SUCCEEDED)
    assert done.attempt == 2
    retried = [event for event in job_site.jobs.events(job.id) if event.cause == "retry"]
    assert retried[0].payload["error_class"] == "node_lost"
    assert "was started anew" in retried[0].payload["error_message"]
    check_whole(job_site, job.run_dir, steps=10)


@pytest.mark.slow
def test_a_clock_that_jumps_on_the_worker_changes_nothing(job_site: Site) -> None:
    job = job_site.submit(steps=30, step_s=0.05)
    job_site.worker("--until-idle", faults="clock_jumps")
    done = job_site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, done.lease_epoch) == (1, 1)
    assert [cause for cause, _ in job_site.transitions(job)] == ["submit", "claim", "started", "finished"]


def _set_attempt(site: Site, job_id: str, **values: object) -> None:
    with site.database.transaction() as connection:
        connection.execute(tables.attempts.update().where(tables.attempts.c.job_id == job_id).values(values))


def _pretend_other_host(site: Site, job_id: str) -> None:
    """As if the attempt and its worker were on a machine that does not answer."""
    with site.database.transaction() as connection:
        connection.execute(
            sa.update(tables.attempts).where(tables.attempts.c.job_id == job_id).values(host="elsewhere")
        )
        connection.execute(sa.update(tables.workers).values(host="elsewhere"))
