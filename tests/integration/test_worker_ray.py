"""Jobs of a Ray cluster: started once, tolerated while they wait, stopped with a checkpoint, not lost with the head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from job_site import Site, open_sqlite_site
from ray_head import RayHead
from test_worker_faults import check_index, check_whole

from mmrl.jobs.states import JobState
from mmrl.jobs.worker.launcher import Launch, LaunchFault
from mmrl.jobs.worker.ray_launcher import RayLauncher
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs.reader import RunReader

pytestmark = [pytest.mark.ray, pytest.mark.slow]
RAY = {"backend": "ray"}


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    head = RayHead.begin()
    try:
        yield head
    finally:
        head.end()


@pytest.fixture
def site(tmp_path: Path, sqlite_template: Path) -> Iterator[Site]:
    with open_sqlite_site(sqlite_template, tmp_path) as site:
        yield site


def test_j09_a_ray_job_may_wait_and_then_runs_to_its_end(site: Site, head: RayHead) -> None:
    job = site.submit(steps=5, job=RAY)
    site.worker("--ray-address", head.address, "--until-idle")
    done = site.wait(job, JobState.SUCCEEDED, timeout_s=120)
    assert done.exit_code == 0
    assert site.jobs.attempts(job.id)[0].external_id == f"mmrl-{job.id}-1"
    check_whole(site, job.run_dir, steps=5)
    check_index(site, job.id, steps=5)


def test_j01_the_same_attempt_started_twice_runs_once(site: Site, head: RayHead) -> None:
    """Two launchers, as after a crash between the start and its note."""
    job = site.submit_held(at=2, steps=3, job=RAY)
    launch = launch_of(site, job)
    first = RayLauncher(head.address).start(launch)
    second = RayLauncher(head.address).start(launch)
    assert first.identity == second.identity
    site.wait_for_step(job, 1)
    site.open_gate()
    site.until(lambda: second.poll(), timeout_s=60)
    assert second.poll().exit_code == 0  # type: ignore[union-attr]
    assert RunReader(Path(job.run_dir)).attempts() == [1]


def test_a_ray_job_is_cancelled_with_a_checkpoint(site: Site, head: RayHead) -> None:
    job = site.submit_held(at=3, steps=9, job=RAY)
    site.worker("--ray-address", head.address)
    site.until(lambda: (Path(job.run_dir) / "attempt-1" / "metrics.jsonl").exists(), timeout_s=120)
    site.wait_for_step(job, 2)
    site.jobs.cancel(job.id)
    done = site.wait(job, JobState.CANCELLED, timeout_s=60)
    assert (done.exit_code, site.trainer(job)) == (7, [])
    assert RunReader(Path(job.run_dir)).checkpoints()


def test_a_worker_killed_over_a_ray_job_is_followed_by_one_that_adopts_it(site: Site, head: RayHead) -> None:
    job = site.submit_held(at=3, steps=4, job=RAY)
    first = site.worker("--ray-address", head.address)
    site.until(lambda: (Path(job.run_dir) / "attempt-1" / "metrics.jsonl").exists(), timeout_s=120)
    site.kill_worker(first)
    site.worker("--ray-address", head.address, "--until-idle")
    site.until(lambda: ("adopted", "running") in site.transitions(job))
    site.open_gate()
    assert site.wait(job, JobState.SUCCEEDED, timeout_s=60).attempt == 1


def test_a_head_that_restarts_costs_a_start_and_not_the_run(site: Site, head: RayHead) -> None:
    job = site.submit_held(at=6, steps=8, checkpoint_every=2, job=RAY)
    site.worker("--ray-address", head.address)
    path = Path(job.run_dir) / "attempt-1" / "metrics.jsonl"
    site.until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 5, timeout_s=120)
    head.restart()
    site.open_gate()
    done = site.wait(job, JobState.SUCCEEDED, timeout_s=180)
    assert done.attempt == 2
    [retry] = [event for event in site.jobs.events(job.id) if event.cause == "retry"]
    assert retry.payload["error_class"] in ("node_lost", "killed")
    check_whole(site, job.run_dir, steps=8)


def test_a_cluster_that_does_not_answer_is_told(site: Site) -> None:
    job = site.submit(steps=1, job=RAY)
    with pytest.raises(LaunchFault, match=r"the Ray cluster at http://127\.0\.0\.1:9 does not answer"):
        RayLauncher("http://127.0.0.1:9").start(launch_of(site, job))


def launch_of(site: Site, job: object) -> Launch:
    """What a worker would start for the job, claimed here."""
    import sys

    from mmrl.jobs.leases import Leases
    from mmrl.jobs.records import WorkerInfo
    from mmrl.runs.ownership import AttemptClaim

    leases = Leases(site.database)
    leases.register(WorkerInfo("here", "boot", 1, 1.0))
    lease = leases.claim(job.id)  # type: ignore[attr-defined]
    assert lease is not None
    folder = RunFolder.of_job(replace(lease.job, attempt=lease.attempt))
    folder.prepare(lease)
    trainer = [sys.executable, "-m", "mmrl", "train", str(folder.config_file), "--run-dir", lease.job.run_dir]
    return Launch(lease, folder, trainer, AttemptClaim(lease.attempt, lease.token).environment)
