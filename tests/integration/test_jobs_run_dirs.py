"""One run directory for one job, however it is written and whoever comes at the same time, on both engines."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from job_rows import new_job, submit
from runs_builders import begin_run

from mmrl.errors import ConflictError
from mmrl.jobs import run_dirs, tables
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.submitting import insert_job
from mmrl.jobs.users import local_user


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with links to it and to a run directory in it."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "y").symlink_to(folder / "x")
    return folder


def after_looking(monkeypatch: pytest.MonkeyPatch, *events: Callable[[], object]) -> list[int]:
    """Each of the events happens once the disk was looked at and before the job is written. Gives a list that grows by
    one at each look."""
    looks: list[int] = []
    real, rest = run_dirs._look, list(events)

    def look(*given: Any) -> run_dirs.Look:
        found = real(*given)
        looks.append(len(looks))
        if rest:
            rest.pop(0)()
        return found

    monkeypatch.setattr(run_dirs, "_look", look)
    return looks


@pytest.mark.parametrize(
    ("first", "second"), [("runs/x", "link/x"), ("link/x", "runs/x"), ("y", "link/x"), ("file:///runs/x", "link/x")]
)
def test_a_run_directory_behind_a_link_is_the_same_one(
    first: str, second: str, job_database: Database, runs: Path, tmp_path: Path
) -> None:
    def whole(word: str) -> str:
        return word.replace("file://", f"file://{tmp_path}") if "://" in word else str(tmp_path / word)

    job = submit(job_database, run_dir=whole(first))
    assert job.run_dir == whole(first), "workers may see links otherwise"
    with pytest.raises(ConflictError) as caught:
        submit(job_database, run_dir=whole(second))
    told = (
        f"{whole(second)} is the folder {whole(first)}, and that is the run directory of job {job.id}, which is queued"
    )
    assert told in str(caught.value)
    submit(job_database, run_dir=str(tmp_path / "link" / "z"))
    Jobs(job_database).cancel(job.id)
    assert submit(job_database, run_dir=whole(second)).run_dir == whole(second)


def test_a_job_of_an_older_version_is_found_however_its_run_directory_was_written(
    job_database: Database, runs: Path
) -> None:
    job = submit(job_database)
    with job_database.transaction() as connection:
        changed = tables.jobs.update().where(tables.jobs.c.id == job.id)
        connection.execute(changed.values(run_dir=f"{runs.parent}/link/../runs/x/"))
    with pytest.raises(ConflictError, match=f"is the run directory of job {job.id}"):
        submit(job_database, run_dir=str(runs / "x"))


def test_of_many_who_name_one_folder_at_once_one_gets_it(job_database: Database, runs: Path, tmp_path: Path) -> None:
    words = [str(tmp_path / word) for word in ("runs/x", "link/x", "y", "runs/x", "link/x", "y")]

    def press(run_dir: str) -> str | None:
        try:
            return Jobs(job_database).submit(new_job(run_dir=run_dir)).id
        except ConflictError:
            return None

    with ThreadPoolExecutor(len(words)) as pool:
        got = [job_id for job_id in pool.map(press, words) if job_id is not None]
    assert [job.id for job in Jobs(job_database).list()] == got
    assert len(got) == 1


def test_who_comes_while_another_is_being_written_waits_and_is_refused(
    job_database: Database, runs: Path, tmp_path: Path
) -> None:
    submit(job_database, "who makes the pool known, for which others would wait too")
    with ThreadPoolExecutor(1) as pool:
        with job_database.transaction() as connection:
            first = new_job(run_dir=str(runs / "x"))
            job_id = insert_job(connection, job_database, first, local_user(connection))
            second = pool.submit(submit, job_database, run_dir=str(tmp_path / "y"))
            assert not wait([second], timeout=0.3).done
        with pytest.raises(ConflictError, match=f"is the run directory of job {job_id}"):
            second.result()


def test_others_write_while_the_disk_is_looked_at_and_what_they_take_is_not_taken_again(
    job_database: Database, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_database.settings = job_database.settings.model_copy(update={"lock_wait_s": 1.0})
    looks = after_looking(monkeypatch, lambda: submit(job_database, "quick", run_dir=str(runs / "x")))
    with pytest.raises(ConflictError, match=f"is the folder {runs}/x, and that is the run directory of job"):
        submit(job_database, "slow", run_dir=str(tmp_path / "link" / "x"))
    assert len(looks) == 3, "that of the quick one, and of the slow one a second"
    assert [job.name for job in Jobs(job_database).list()] == ["quick"]


def test_a_run_that_came_while_the_disk_was_looked_at_is_seen(
    job_database: Database, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(job_database, run_dir=str(runs / "x"))

    def run_and_end() -> None:
        begin_run(runs / "x")
        Jobs(job_database).cancel(job.id)

    after_looking(monkeypatch, run_and_end)
    with pytest.raises(ConflictError, match="holds a run already"):
        submit(job_database, run_dir=os.fspath(tmp_path / "link" / "x"))


def test_jobs_that_come_all_the_time_keep_nobody_from_being_written(
    job_database: Database, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(range(9))
    looks = after_looking(monkeypatch, *[lambda: submit(job_database, f"other-{next(names)}")] * 3)
    assert submit(job_database, "mine", run_dir=str(runs / "x")).run_dir == str(runs / "x")
    assert len(looks) == 4, "the last one within the transaction"
