"""Many jobs and many workers, all of them real processes: each job is run once, by the word of what ran."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from job_site import open_site

from mmrl.config import NoopConfig
from mmrl.jobs.from_config import job_of
from mmrl.jobs.states import JobState

UNHURRIED = {"MMRL_JOBS_LEASE_S": "120", "MMRL_JOBS_BEAT_S": "10", "MMRL_JOBS_POLL_S": "1"}
"""Twenty workers on two cores: a lease that runs out would be no fault of theirs."""


@pytest.mark.parametrize(
    ("num_workers", "num_jobs"), [(3, 12), pytest.param(20, 1000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_each_of_many_jobs_starts_one_process_whichever_worker_takes_it(
    job_url: str, tmp_path: Path, num_workers: int, num_jobs: int
) -> None:
    """Each run's process writes its run directory, attempt and id into a file before it does anything else."""
    config = NoopConfig(name="probe", noop={"starts_file": "starts.jsonl"})  # type: ignore[arg-type]
    with open_site(job_url, tmp_path / "home", **UNHURRIED) as site:
        run_dirs = {site.add(site.jobs.submit(job_of(config))).run_dir for _ in range(num_jobs)}
        workers = [site.worker("--cpus", "1", "--until-idle") for _ in range(num_workers)]
        for worker in workers:
            assert worker.wait(timeout=60 + 3 * num_jobs) == 0, site.told()
        jobs = site.jobs.list(limit=None)
        holders = {attempt.worker_id for job in jobs for attempt in site.jobs.attempts(job.id)}
        logs = [site.log(number) for number in range(num_workers)]
    assert [job.error_message for job in jobs if job.state is not JobState.SUCCEEDED] == []
    (folder,) = {Path(run_dir).parent for run_dir in run_dirs}
    begun = [json.loads(line) for line in (folder / "starts.jsonl").read_text().splitlines()]
    assert Counter(start["run_dir"] for start in begun) == Counter(run_dirs)
    assert {start["attempt"] for start in begun} == {1}
    assert {(job.attempt, job.lease_epoch) for job in jobs} == {(1, 1)}
    assert sum(log.count("attempt 1 started") for log in logs) == num_jobs
    assert len(holders) > num_workers // 2, "the work was shared out"
