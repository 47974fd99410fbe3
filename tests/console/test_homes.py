"""The homes hold what their names say, as mmrl's own readers see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from home_large import NUM_CHECKPOINTS, NUM_RUNS, NUM_SAMPLES
from homes import Home

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import JobState
from mmrl.runs.reader import RunReader


def test_the_small_home_has_a_job_in_every_state(shared_home: Callable[[str], Home]) -> None:
    with shared_home("small").active(), Database.open() as database:
        states = {job.state for job in Jobs(database).list(limit=None)}
    assert states == set(JobState)


def test_a_run_of_the_small_home_is_read_like_any_other(shared_home: Callable[[str], Home]) -> None:
    home = shared_home("small")
    with home.active(), Database.open() as database:
        jobs = Jobs(database)
        job = jobs.get(home.jobs["succeeded"])
        run = RunReader(Path(job.run_dir))
        assert (job.step, run.state().state) == (100, "succeeded")
        assert len(jobs.metrics(job.id, ["reward/mean"])["reward/mean"]) == 100
        assert [row.step for row in jobs.checkpoints(job.id)] == [50, 100]
        group = run.sample_groups(100, "train")[0]
    assert run.image(group.images[0].sha256) is not None


def test_the_large_home_has_the_numbers_that_pages_are_measured_with(shared_home: Callable[[str], Home]) -> None:
    with shared_home("large").active(), Database.open() as database, database.reading() as connection:
        counted = [
            connection.exec_driver_sql(f"SELECT {what} FROM {table}").scalar_one()
            for what, table in (("count(*)", "jobs"), ("sum(rows)", "sample_shards"), ("count(*)", "checkpoints"))
        ]
    assert counted == [NUM_RUNS, NUM_SAMPLES, NUM_CHECKPOINTS]
