"""What people and clusters ask of a worker: stop, go on, drain, hand over, tell; and a database that comes and goes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_site import LEASE_S, Site, open_site, open_sqlite_site
from test_worker_faults import check_index, check_whole

from mmrl.cli.app import main
from mmrl.errors import ConflictError
from mmrl.jobs.database import Database
from mmrl.jobs.pools import Fleet
from mmrl.jobs.states import TERMINAL, JobState
from mmrl.runs.reader import RunReader


@pytest.fixture
def site(tmp_path: Path, sqlite_template: Path) -> Iterator[Site]:
    with open_sqlite_site(sqlite_template, tmp_path) as site:
        yield site


def test_a_paused_job_goes_on_where_it_was_as_the_same_job(site: Site) -> None:
    job = site.submit_held(at=5, steps=9)
    site.worker()
    site.wait_for_step(job, 4)
    site.jobs.pause(job.id)
    paused = site.wait(job, JobState.PAUSED)
    assert (paused.exit_code, site.trainer(job)) == (7, [])
    assert RunReader(Path(job.run_dir)).state().state == "paused"
    [checkpoint] = site.jobs.checkpoints(job.id)
    site.open_gate()
    site.jobs.resume(job.id)
    done = site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, done.step, done.total_steps) == (2, 9, 9)
    assert site.jobs.attempts(job.id)[1].first_step == checkpoint.step
    check_whole(site, job.run_dir, steps=9)
    check_index(site, job.id, steps=9)


def test_a_cancelled_job_goes_on_as_a_child_from_its_last_checkpoint(site: Site) -> None:
    job = site.submit_held(at=5, steps=9)
    site.worker()
    site.wait_for_step(job, 4)
    site.jobs.cancel(job.id)
    cancelled = site.wait(job, JobState.CANCELLED)
    [checkpoint] = site.jobs.checkpoints(job.id)
    site.open_gate()
    child = site.add(site.jobs.resume(cancelled.id))
    done = site.wait(child, JobState.SUCCEEDED)
    assert (done.parent_job_id, done.resume_checkpoint) == (job.id, checkpoint.uri)
    assert done.run_dir != job.run_dir
    steps = [row.step for row in RunReader(Path(done.run_dir)).metrics()]
    assert steps == list(range(checkpoint.step + 1, 10))


@pytest.mark.parametrize(("first", "then"), [("cancel", "kill"), ("pause", "kill"), ("pause", "cancel")])
def test_a_stronger_wish_is_heard_at_once_while_a_run_is_stopping(first: str, then: str, site: Site) -> None:
    """Beats are far apart here, and the run heeds no SIGTERM."""
    job = site.submit_held(at=3, steps=9, ignore_sigterm=True)
    site.worker(MMRL_JOBS_BEAT_S="25", MMRL_JOBS_LEASE_S="60", MMRL_JOBS_GRACE_S="1" if then == "cancel" else "60")
    site.wait_for_step(job, 2)
    getattr(site.jobs, first)(job.id)
    site.wait(job, JobState.STOPPING)
    getattr(site.jobs, then)(job.id)
    site.wait(job, JobState.CANCELLED, timeout_s=15)
    assert site.trainer(job) == []


def test_a_child_of_a_run_in_a_store_goes_on_from_there_on_a_machine_that_never_saw_it(
    site: Site, tmp_path: Path
) -> None:
    job = site.submit_held(at=5, steps=9, mirror_every_s=0.1, job={"run_dir": f"file://{tmp_path}/store/parent"})
    first = site.worker(MMRL_HOME=str(tmp_path / "first"))
    site.until(lambda: site.jobs.get(job.id).step >= 4)
    site.jobs.cancel(job.id)
    site.wait(job, JobState.CANCELLED)
    site.stop_workers()
    assert first.returncode == 0
    shutil.rmtree(tmp_path / "first")
    site.open_gate()
    child = site.add(site.jobs.resume(job.id))
    [checkpoint] = site.jobs.checkpoints(job.id)
    assert child.resume_checkpoint == f"{job.run_dir}/checkpoints/step-{checkpoint.step:06d}"
    assert child.run_dir == f"file://{tmp_path}/store/probe-{child.short_id}"
    site.worker(MMRL_HOME=str(tmp_path / "second"))
    site.wait(child, JobState.SUCCEEDED)
    points = site.jobs.metrics(child.id, ["noop/value"])["noop/value"]
    assert [point.step for point in points] == list(range(checkpoint.step + 1, 10))
    assert list((tmp_path / "store" / f"probe-{child.short_id}").glob("attempt-1/metrics.jsonl*"))


def test_a_job_that_is_handed_over_loses_nothing(site: Site) -> None:
    job = site.submit_held(at=5, steps=9)
    first = site.worker("--drain", "handover")
    site.wait_for_step(job, 4)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    site.open_gate()
    queued = site.jobs.get(job.id)
    assert (queued.state, queued.retries) == (JobState.QUEUED, 0)
    site.worker("--until-idle")
    done = site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, site.jobs.attempts(job.id)[0].end_reason) == (2, "preempted")
    check_whole(site, job.run_dir, steps=9)
    check_index(site, job.id, steps=9)


def test_a_run_has_as_many_threads_as_its_slots_are_of_the_workers(site: Site) -> None:
    """Two tiny runs with all cores each would take ten times as long as one after the other."""
    jobs = [site.submit_held(at=2, steps=3, job={"cpus": cpus}) for cpus in (1, 3)]
    site.worker("--cpus", "4", OMP_NUM_THREADS="")
    threads = []
    for job in jobs:
        site.wait_for_step(job, 1)
        environment = Path(f"/proc/{site.trainer(job)[0].pid}/environ").read_text().split("\0")
        threads += [variable for variable in environment if variable.startswith("OMP_NUM_THREADS=")]
    cores = len(os.sched_getaffinity(0))
    assert threads == [f"OMP_NUM_THREADS={max(1, cores * cpus // 4)}" for cpus in (1, 3)]


@pytest.mark.slow
def test_a_draining_worker_takes_nothing_new_and_waits_for_what_it_has(site: Site) -> None:
    job = site.submit_held(at=3, steps=4)
    worker = site.worker()
    site.wait_for_step(job, 2)
    assert main(["worker", "drain", site.worker_ids()[0]]) == 0
    site.until(lambda: "draining" in site.log())
    waiting = site.submit(steps=1)
    time.sleep(0.5)
    assert site.jobs.get(waiting.id).state is JobState.QUEUED
    site.open_gate()
    assert worker.wait(timeout=30) == 0
    assert site.jobs.get(job.id).state is JobState.SUCCEEDED
    assert site.jobs.get(waiting.id).state is JobState.QUEUED


@pytest.mark.slow
def test_a_worker_may_be_exchanged_under_a_run(site: Site) -> None:
    """It leaves its runs to the next worker of the machine."""
    job = site.submit_held(at=3, steps=4)
    first = site.worker("--drain", "leave")
    site.wait_for_step(job, 2)
    trainer = site.trainer(job)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    assert site.trainer(job) == trainer
    site.worker("--until-idle")
    site.until(lambda: ("adopted", "running") in site.transitions(job))
    site.open_gate()
    assert site.wait(job, JobState.SUCCEEDED).attempt == 1


@pytest.mark.slow
def test_workers_that_join_later_take_their_share(site: Site) -> None:
    jobs = [site.submit(steps=2, step_s=0.4) for _ in range(6)]
    site.worker("--cpus", "1", "--until-idle")
    site.until(lambda: site.jobs.get(jobs[0].id).state is not JobState.QUEUED)
    site.worker("--cpus", "1", "--until-idle")
    for job in jobs:
        assert site.wait(job, JobState.SUCCEEDED).attempt == 1
    assert {site.jobs.attempts(job.id)[0].worker_id for job in jobs} == set(site.worker_ids())
    assert len(site.worker_ids()) == 2


def test_cancel_races_with_claim_finish_and_retry(site: Site) -> None:
    """Each job ends once, whatever comes first, and nothing of it is left."""
    draw = random.Random(0)
    site.worker("--cpus", "4")
    jobs = []
    for number in range(12):
        fails = {"kill_at_step": 2, "fail_attempts": 1} if number % 3 == 0 else {}
        job = site.submit(steps=3, step_s=0.02, **fails)
        jobs.append(job)
        threading.Timer(draw.uniform(0.0, 3.0), lambda job=job: cancel(site, job)).start()
    ends = [site.wait(job, timeout_s=60).state for job in jobs]
    assert set(ends) <= {JobState.SUCCEEDED, JobState.CANCELLED}
    time.sleep(0.5)
    for job, end in zip(jobs, ends, strict=True):
        assert site.jobs.get(job.id).state is end
        states = [state for _, state in site.transitions(job)]
        assert sum(JobState(state) in TERMINAL for state in states) == 1
        assert site.trainer(job) == []


def cancel(site: Site, job: Any) -> None:
    """A job that has ended refuses it."""
    with contextlib.suppress(ConflictError):
        site.jobs.cancel(job.id)


def test_a_full_disk_is_the_machines_fault_and_the_run_goes_on_when_there_is_room(site: Site) -> None:
    """The worker's processes may write no file of more than 2 MB at first: the checkpoint of step 6 does not fit."""
    job = site.submit(steps=8, checkpoint_every=3, checkpoint_mb=4.0, fail_attempts=1)
    small = ["/bin/sh", "-c", 'ulimit -f 4000; exec "$@"', "sh"]
    command = [*small, sys.executable, "-m", "mmrl", "worker", "start", "--cpus", "1", "--once"]
    with (site.home / "worker-0.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, timeout=60, check=False, env=os.environ)
    failed = site.jobs.get(job.id)
    assert (failed.state, failed.error_class) == (JobState.QUEUED, "storage"), site.told()
    site.worker("--until-idle")
    done = site.wait(job, JobState.SUCCEEDED)
    assert done.attempt == 2
    check_whole(site, job.run_dir, steps=8)
    check_index(site, job.id, steps=8)


@pytest.mark.slow
def test_a_database_locked_for_longer_than_a_lease_costs_no_run(site: Site) -> None:
    """J11's kind: another process holds the write lock of the file."""
    job = site.submit_held(at=4, steps=9)
    site.worker(MMRL_JOBS_LOCK_WAIT_S="0.3")
    site.wait_for_step(job, 3)
    trainer = site.trainer(job)
    with sqlite3.connect(site.home / "mmrl.db", timeout=30) as lock:
        lock.execute("BEGIN IMMEDIATE")
        site.until(lambda: "stayed locked" in site.log())
        time.sleep(1.5 * LEASE_S)
        assert site.trainer(job) == trainer
        site.open_gate()
        site.wait_for_step(job, 9)
        lock.rollback()
    done = site.wait(job, JobState.SUCCEEDED)
    assert done.attempt == 1
    check_index(site, job.id, steps=9)


@pytest.mark.postgres
def test_a_database_gone_for_longer_than_a_lease_costs_no_run(tmp_path: Path) -> None:
    """The server dies and comes back; runs go on, one of them ends meanwhile, and all of it is caught up with."""
    from postgres_server import TEMPLATE, PostgresServer

    server = PostgresServer.begin()
    try:
        server.create_template()
        with open_site(server.create_database(template=TEMPLATE), tmp_path / "home") as site:
            held, ending = site.submit_held(at=4, steps=9), site.submit(steps=40, step_s=0.1)
            site.worker()
            site.wait_for_step(held, 3)
            site.wait_for_step(ending, 3)
            trainer = site.trainer(held)
            server.stop()
            site.until(lambda: "cannot be reached" in site.log())
            time.sleep(1.5 * LEASE_S)
            site.wait_for_step(ending, 40)
            site.until(lambda: not site.trainer(ending))
            server.start()
            assert site.trainer(held) == trainer
            done = site.wait(ending, JobState.SUCCEEDED)
            assert (done.attempt, done.exit_code) == (1, 0)
            site.open_gate()
            assert site.wait(held, JobState.SUCCEEDED).attempt == 1
            for job, steps in ((held, 9), (ending, 40)):
                check_index(site, job.id, steps=steps)
    finally:
        server.end()


@pytest.mark.slow
def test_an_upgrade_of_the_database_waits_for_beats_and_beats_for_it(site: Site) -> None:
    """A migration holds the database while a run is under way; two upgrades at once do no harm."""
    job = site.submit_held(at=4, steps=9)
    site.worker()
    site.wait_for_step(job, 3)
    upgrades = [
        subprocess.Popen([sys.executable, "-m", "mmrl", "db", "upgrade"], stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(timeout=60) for process in upgrades] == [0, 0]
    with Database.open(check=False) as database, database.migrating() as connection:
        connection.exec_driver_sql("ALTER TABLE jobs ADD COLUMN later TEXT")
        time.sleep(3 * 0.2)
    site.open_gate()
    done = site.wait(job, JobState.SUCCEEDED)
    assert (done.attempt, done.lease_epoch) == (1, 1)


def test_x07_a_secret_reaches_the_trainer_and_nothing_that_is_written(site: Site) -> None:
    """By reference: not in the database, the command lines, the run directory or what the worker tells."""
    key = "sk-" + "fake" * 8
    job = site.submit_held(at=2, steps=3, failure="env:JUDGE_KEY")
    site.worker(JUDGE_KEY=key, MMRL_SECRET_MARK=key)
    site.wait_for_step(job, 1)
    environments = [Path(f"/proc/{process.pid}/environ").read_bytes() for process in site.trainer(job)]
    assert all(key.encode() in environment for environment in environments)
    assert not any(b"MMRL_DATABASE_URL" in environment for environment in environments)
    commands = [Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in site.trainer(job)]
    token = site.jobs.attempts(job.id)[0].token
    assert not any(key.encode() in command or token.encode() in command for command in commands)
    site.open_gate()
    site.wait(job, JobState.SUCCEEDED)
    written = [path for path in site.home.rglob("*") if path.is_file()]
    assert [path for path in written if key.encode() in path.read_bytes()] == []


def test_a_worker_tells_how_it_is(site: Site) -> None:
    job = site.submit_held(at=2, steps=3, samples_per_step=4)
    site.worker()
    site.wait_for_step(job, 1)
    address = next(line.split()[-1] for line in site.log().splitlines() if "/metrics" in line)
    assert address.startswith("http://127.0.0.1:")
    site.until(lambda: 'mmrl_worker_indexed_samples_total{pool="default"' in get(address)[1])
    health = json.loads(get(address.replace("/metrics", "/healthz"))[1])
    assert (health["ok"], health["jobs"], health["database"]) == (True, [job.id], "ok")
    told = dict(line.rsplit(" ", 1) for line in get(address)[1].splitlines() if not line.startswith("#"))
    values = {name.partition("{")[0]: float(value) for name, value in told.items()}
    assert (values["mmrl_worker_jobs"], values["mmrl_worker_cpu_slots"], values["mmrl_worker_claims_total"]) == (
        1,
        2,
        1,
    )
    site.workers[0].send_signal(signal.SIGSTOP)
    site.workers[0].send_signal(signal.SIGCONT)
    site.open_gate()
    site.wait(job, JobState.SUCCEEDED)


def get(address: str) -> tuple[int, str]:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return answer.status, answer.read().decode()


@pytest.mark.slow
def test_a_worker_that_cannot_serve_its_metrics_leaves_no_ghost(site: Site) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        worker = site.worker("--port", str(taken.getsockname()[1]), MMRL_JOBS_LEASE_S="600")
        assert worker.wait(timeout=30) == 5
    assert "give another --port" in site.log()
    assert Fleet(site.database).workers() == []


def test_many_small_shards_become_few_in_the_index(site: Site) -> None:
    job = site.submit(steps=150, samples_per_step=8)
    site.worker("--until-idle")
    site.wait(job, JobState.SUCCEEDED, timeout_s=60)
    shards = site.jobs.shards(job.id)
    assert [(shard.step_lo, shard.step_hi) for shard in shards] == [(1, 64), (65, 128), (129, 150)]
    assert sum(shard.num_rows for shard in shards) == 150 * 8
    import pyarrow.parquet as pq

    steps = [step for shard in shards for step in pq.read_table(shard.uri, columns=["step"])["step"].to_pylist()]
    assert steps == [step for step in range(1, 151) for _ in range(8)]
    assert len(RunReader(Path(job.run_dir)).steps("train")) == 150, "the shards themselves stay"


def test_workers_are_listed_with_what_they_hold(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    job = site.submit_held(at=2, steps=3)
    site.worker()
    site.wait_for_step(job, 1)
    assert main(["worker", "list", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["job_ids"], listed["pool"], listed["cpus"], listed["state"]) == ([job.id], "default", 2, "active")
    site.open_gate()
    site.stop_workers()
    assert main(["worker", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["worker", "list", "--all"]) == 0
    assert "dead" in capsys.readouterr().out
    assert main(["worker", "drain", "nobody"]) == 3
