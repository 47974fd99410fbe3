"""Jobs whose worker went away while no other was left to look: readers see them as lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from job_rows import join, start, submit
from job_site import Site, open_sqlite_site

from mmrl.cli.app import main
from mmrl.jobs.database import Database
from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import JobState
from mmrl.jobs.sweeping import sweep


@pytest.fixture
def site(tmp_path: Path, sqlite_template: Path) -> Iterator[Site]:
    with open_sqlite_site(sqlite_template, tmp_path) as site:
        yield site


def ran_out(database: Database, job_id: str, seconds: float) -> None:
    """As if the lease had run out so long ago."""
    with database.transaction() as connection:
        now = database.now(connection)
        values = {"at": now - seconds, "id": job_id}
        connection.execute(sa.text("UPDATE jobs SET lease_expires_at = :at WHERE id = :id"), values)


def test_a_reader_leaves_a_lease_to_the_workers_for_half_its_length(job_database: Database) -> None:
    job_database.settings = job_database.settings.model_copy(update={"lease_s": 600.0})
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    assert sweep(job_database) == []
    ran_out(job_database, lease.job_id, 290.0)
    assert sweep(job_database) == []
    ran_out(job_database, lease.job_id, 310.0)
    assert sweep(job_database) == [lease.job_id]
    assert sweep(job_database) == []
    job, event = Jobs(job_database).get(lease.job_id), Jobs(job_database).events(lease.job_id)[-1]
    assert (job.state, event.cause, event.actor) == (JobState.LOST, "lease_expired", "reader")


def test_a_holder_that_was_only_cut_off_takes_its_own_back_from_a_reader(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    ran_out(job_database, lease.job_id, 1000.0)
    sweep(job_database)
    with pytest.raises(LeaseLostError):
        worker.move(lease, JobState.SUCCEEDED, cause="finished")
    again = worker.adopt(lease)
    assert (again.lease_epoch, again.attempt, again.token) == (lease.lease_epoch + 1, lease.attempt, lease.token)
    assert sweep(job_database) == []


def test_a_job_whose_only_worker_was_killed_is_told_as_lost_and_found_again(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> Any:
        capsys.readouterr()
        assert main(["job", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    job = site.submit_held(at=3, steps=4)
    worker = site.worker()
    site.wait_for_step(job, 2)
    site.kill_worker(worker)
    site.until(lambda: told("list")[0]["state"] == "lost")
    assert "its worker is gone" in told("show", job.id)["pending"]["message"]
    assert main(["job", "wait", job.id, "--timeout", "0"]) == 1
    assert "mmrl worker start --pool default" in capsys.readouterr().err
    assert site.trainer(job), "the run itself goes on"
    site.open_gate()
    site.worker("--until-idle")
    assert site.wait(job, JobState.SUCCEEDED).attempt == 1
    assert ("lease_expired", "lost") in site.transitions(job)
