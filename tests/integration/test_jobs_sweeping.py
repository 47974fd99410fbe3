"""Jobs whose worker went away while no other was left to look: readers see them as lost."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from job_rows import join, start, submit
from job_site import Site, open_sqlite_site

from console.services.datasets import Catalogued
from mmrl.cli.app import main
from mmrl.data.normalise import make_sample
from mmrl.data.registry import DatasetRegistry
from mmrl.errors import NotFoundError
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import JobState
from mmrl.jobs.sweeping import sweep
from mmrl.jobs.users import Users
from mmrl.types import Message, TextPart


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


@pytest.fixture
def mmrl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.delenv("MMRL_TOKEN", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("job_url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True)
def test_a_database_that_takes_no_writes_is_read_all_the_same(
    job_database: Database,
    mmrl: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """As a standby is, or a server that is held in read-only mode."""
    registry = DatasetRegistry(tmp_path / "registry")
    rows = {"train": [make_sample((Message("user", (TextPart("1?"),)),), "1", {})]}
    Catalogue(job_database).note(registry.register("early", rows, source="tests"))
    registry.register("late", rows, source="a shell")
    job = submit(job_database)
    users = Users(job_database)
    me = users.local()
    text, _ = users.create_token(me.id, "eyes", scopes=["read"])
    ran_out(job_database, start(join(job_database)).job_id, 1000.0)
    with job_database.transaction() as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    job_database.close()  # its sessions began before
    assert sweep(job_database) == []
    assert users.local() == me
    data_sets = Catalogued(Catalogue(job_database, registry), me)
    assert [each.name for each in data_sets.all()] == ["early"]
    with pytest.raises(NotFoundError, match="takes no writes"):
        data_sets.versions("late")
    for token in (None, text):
        if token is not None:
            monkeypatch.setenv("MMRL_TOKEN", token)
        assert mmrl("job", "list")[0] == 0
        assert json.loads(mmrl("job", "show", job.id, "--json")[1])["state"] == "running"
        code, _, err = mmrl("job", "wait", job.id, "--timeout", "0")
        assert (code, "these have not ended" in err) == (1, True)


def test_a_reader_waits_for_no_lock(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mmrl: Callable[..., tuple[int, str, str]]
) -> None:
    """Another process holds the write lock of the file, and a lease has run out."""
    file = tmp_path / "mmrl.db"
    file.write_bytes(sqlite_template.read_bytes())
    monkeypatch.setenv("MMRL_DATABASE_URL", f"sqlite:///{file}")
    with Database.open() as database:
        text, _ = Users(database).create_token(Users(database).local().id, "eyes", scopes=["read"])
        job = submit(database)
        ran_out(database, start(join(database)).job_id, 1000.0)
    monkeypatch.setenv("MMRL_TOKEN", text)
    with closing(sqlite3.connect(file, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        code, _, err = mmrl("job", "wait", job.id, "--timeout", "1")
        assert (code, "(running)" in err) == (1, True)
        assert time.monotonic() - began < 15.0
        lock.rollback()
    assert json.loads(mmrl("job", "show", job.id, "--json")[1])["state"] == "lost"
