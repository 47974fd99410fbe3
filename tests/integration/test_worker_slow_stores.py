"""A store that hangs: a FIFO in place of one of its files, which nobody opens at the other end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_rows import finish, join, start
from job_site import LEASE_S, Site, open_sqlite_site

from mmrl.jobs.records import Job
from mmrl.jobs.states import JobState
from mmrl.jobs.worker import last_logs
from mmrl.jobs.worker.last_logs import LastLogs
from mmrl.runs.mirror import local_folder

MANIFEST = "checkpoints/step-000002/manifest.json"


@pytest.fixture
def site(tmp_path: Path, sqlite_template: Path) -> Iterator[Site]:
    with open_sqlite_site(sqlite_template, tmp_path) as site:
        yield site


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Whoever opens the file waits until the end of this and is then refused; after that it is the file that it was."""
    real, fifo = path.with_name(".real"), path.with_name(".fifo")
    path.rename(real)
    os.mkfifo(path)
    os.link(path, fifo)
    try:
        yield
    finally:
        content = real.read_bytes()
        real.replace(path)
        try:
            with open(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "wb") as waiting:
                waiting.write(content)
        except OSError:
            pass  # nobody waits any more
        fifo.unlink()


def longer_than_a_lease(site: Site) -> None:
    since = time.monotonic()
    site.until(lambda: time.monotonic() - since > 1.5 * LEASE_S)


def taker_of(site: Site, job: Job, name: str) -> Job:
    return site.submit(name=name, steps=1, exit_code=6, failure=f"job:{job.id}/model@2")


def test_a_store_that_hangs_before_a_start_costs_no_lease_and_delays_no_other_job(site: Site, tmp_path: Path) -> None:
    stores = [tmp_path / "store" / name for name in ("a", "b")]
    jobs = [site.submit(steps=2, checkpoint_every=2, job={"run_dir": f"file://{store}"}) for store in stores]
    site.worker("--until-idle", MMRL_HOME=str(tmp_path / "first"))
    for job in jobs:
        site.wait(job, JobState.SUCCEEDED)
    worker = site.worker("--cpus", "3", MMRL_HOME=str(tmp_path / "second"))
    with hanging(stores[0] / MANIFEST), hanging(stores[1] / MANIFEST):
        waiting, given_up = taker_of(site, jobs[0], "waiting"), taker_of(site, jobs[1], "given up")
        site.until(lambda: len(site.jobs.fetches(map(site.jobs.get, (waiting.id, given_up.id)))) == 2)
        reason = site.jobs.why_pending(waiting)
        what = f"fetches checkpoint 2 of job {jobs[0].short_id} (probe) from file://{stores[0]}, since "
        assert (reason.code, reason.message.startswith(what)) == ("fetching", True), reason.message
        other = site.submit_held(at=2, steps=3, name="other")
        site.wait_for_step(other, 1)
        longer_than_a_lease(site)
        site.jobs.cancel(other.id)
        site.jobs.cancel(given_up.id)
        asked = time.monotonic()
        site.wait(given_up, JobState.CANCELLED)
        site.wait(other, JobState.CANCELLED)
        assert time.monotonic() - asked < LEASE_S
        assert (site.jobs.get(waiting.id).state, site.jobs.get(waiting.id).lease_epoch) == (JobState.STARTING, 1)
        assert not Path(given_up.run_dir).exists(), "it never started"
    told = site.wait(waiting, JobState.FAILED).error_message
    assert told is not None
    assert told.endswith("checkpoints/step-000002/model"), told
    first = [(event.cause, (event.payload or {}).get("error_class")) for event in site.jobs.events(waiting.id)][:5]
    again = [("retry", "storage"), ("claim", None)]
    assert first == [("submit", None), ("claim", None), ("fetching", None), *again], "what hung was refused"
    assert worker.poll() is None


def test_a_worker_that_waits_for_its_runs_gives_back_what_hangs_before_it_began(site: Site, tmp_path: Path) -> None:
    """It has the grace of any run; nobody has to send a second signal."""
    store = tmp_path / "store" / "run"
    job = site.submit(job={"run_dir": f"file://{store}"})
    earlier = join(site.database)
    lease = start(earlier)
    (store / MANIFEST).parent.mkdir(parents=True)
    (store / MANIFEST).write_text("{}")
    finish(earlier, lease)
    with hanging(store / MANIFEST):
        waiting = taker_of(site, job, "waiting")
        worker = site.worker(MMRL_JOBS_GRACE_S="0.5")
        site.until(lambda: site.jobs.fetches([site.jobs.get(waiting.id)]))
        asked = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
        assert time.monotonic() - asked >= 0.5
    assert site.transitions(waiting)[-2:] == [("preempt", "stopping"), ("preempted", "queued")]
    assert "waiting: its inputs did not come within 0.5 s" in site.log()


def test_a_store_that_hangs_at_the_end_of_a_run_costs_no_lease_and_delays_no_other_job(
    site: Site, tmp_path: Path
) -> None:
    store = tmp_path / "store" / "run"
    job = site.submit_held(
        at=2, steps=3, mirror_every_s=3600, job={"run_dir": f"file://{store}", "max_attempts": 1}, name="ends"
    )
    site.worker()
    log = local_folder(job.run_dir) / "attempt-1" / "logs" / "stderr.log"
    site.until(lambda: log.is_file() and "step 1" in log.read_text())
    fifo = store / "attempt-1" / "logs" / "stderr.log.part-000000000000"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    for process in site.trainer(job):
        os.kill(process.pid, signal.SIGKILL)
    longer_than_a_lease(site)
    site.wait(site.submit(steps=1, name="other"), JobState.SUCCEEDED)
    held = site.jobs.get(job.id)
    assert (held.state, held.lease_epoch) == (JobState.RUNNING, 1)
    assert fifo.read_bytes() == log.read_bytes()
    assert site.wait(job, JobState.FAILED).error_class == "killed"
    assert [cause for cause, _ in site.transitions(job)] == ["submit", "claim", "started", "failed"]


def test_the_end_of_a_job_waits_for_its_logs_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(last_logs, "LONGEST_S", 0.2)
    address = f"file://{tmp_path}/store/run"
    log = local_folder(address) / "attempt-1" / "logs" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("its last words\n")
    fifo = tmp_path / "store" / "run" / "attempt-1" / "logs" / "stderr.log.part-000000000000"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    told: list[str] = []
    logs = LastLogs(address, 1, told.append)
    assert not logs.are_over()
    deadline = time.monotonic() + 30.0
    while not logs.are_over():
        assert time.monotonic() < deadline
    assert logs.are_over()
    assert told == ["the end of its logs is not in its store after 0 s; the job ends without waiting"]
    with fifo.open("rb") as waiting:
        assert waiting.read() == b"its last words\n"
