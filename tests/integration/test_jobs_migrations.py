"""From each older schema version to the newest, on both engines: explicit, one at a time, and while workers beat."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from job_claimers import beat_or_upgrade, open_fresh, together, upgrade
from job_rows import claim, join

from mmrl.jobs.database import Database
from mmrl.jobs.errors import SchemaError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.marks import Answer, Marks, item_key
from mmrl.jobs.schema import HEAD, REVISIONS, schema_status, upgrade_schema
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.tables import metadata
from mmrl.jobs.users import Users

OLDER = REVISIONS[:-1]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The address of a database with nothing in it."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'home' / 'mmrl.db'}"
        monkeypatch.setenv("MMRL_DATABASE_URL", url)
        yield url
        return
    server = request.getfixturevalue("postgres_server")
    url = server.create_database()
    monkeypatch.setenv("MMRL_DATABASE_URL", url)
    yield url
    server.drop_database(url)


def test_the_versions_end_in_what_the_tables_say(job_database: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with job_database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": False})
        assert compare_metadata(context, metadata) == []
        names = {"sqlite": "name FROM sqlite_master WHERE type = 'index'", "postgresql": "indexname FROM pg_indexes"}
        indexes = set(connection.execute(sa.text(f"SELECT {names[job_database.dialect]}")).scalars())
    wanted = {index.name for table in metadata.tables.values() for index in table.indexes}
    assert wanted <= indexes


def test_the_list_of_versions_is_that_of_the_files() -> None:
    from alembic.script import ScriptDirectory

    import mmrl.jobs

    scripts = ScriptDirectory(os.path.join(os.path.dirname(mmrl.jobs.__file__), "migrations"))
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == REVISIONS


def test_a_fresh_database_is_set_up_by_itself_also_by_many_at_once(empty_url: str) -> None:
    assert together(open_fresh, empty_url, 4) == [0] * 4
    with Database.open(empty_url) as database:
        assert schema_status(database).state == "current"


@pytest.mark.parametrize("version", OLDER)
def test_rows_of_an_older_version_survive_the_upgrade(empty_url: str, version: str) -> None:
    with Database.open(empty_url, check=False) as database:
        assert upgrade_schema(database, to=version) == (None, version)
        _write_old_rows(database)
        with pytest.raises(SchemaError, match=f"has schema version {version}, this mmrl needs {HEAD}; run `mmrl db up"):
            Database.open(empty_url)
        assert upgrade_schema(database) == (version, HEAD)
        assert upgrade_schema(database) == (HEAD, HEAD)
    with Database.open(empty_url) as database:
        job = Jobs(database).get("old-job")
        assert (job.config, job.tags, job.note, job.step) == ({"name": "x", "kind": "noop"}, (), None, 4)
        assert Jobs(database).events("old-job")[0].payload == {"word": "no"}
        with database.transaction() as connection:
            connection.execute(sa.text("UPDATE jobs SET num_waited_for = 0, state = 'queued'"))
        assert claim(join(database)).job_id == "old-job"


@pytest.mark.parametrize("version", OLDER)
def test_parallel_upgrades_wait_for_each_other(empty_url: str, version: str) -> None:
    with Database.open(empty_url, check=False) as database:
        upgrade_schema(database, to=version)
    found = sorted(together(upgrade, empty_url, 4))
    assert found == sorted([(version, HEAD)] + [(HEAD, HEAD)] * 3)


@pytest.mark.parametrize("version", OLDER)
def test_workers_beat_through_an_upgrade(empty_url: str, version: str) -> None:
    settings = JobsSettings(lease_s=2.0, beat_s=0.5)
    os.environ["MMRL_JOBS_LEASE_S"], os.environ["MMRL_JOBS_BEAT_S"] = "2", "0.5"
    try:
        with Database.open(empty_url, check=False, settings=settings) as database:
            upgrade_schema(database, to=version)
            _write_old_rows(database)
            lease = _old_lease(database, join(database))
            done, *beats = together(beat_or_upgrade, empty_url, 3, lease)
        assert done == (version, HEAD)
        assert all(held and count > 5 for count, held in beats)
    finally:
        del os.environ["MMRL_JOBS_LEASE_S"], os.environ["MMRL_JOBS_BEAT_S"]


def test_an_upgrade_that_fails_leaves_the_older_version_whole(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmrl.jobs import schema

    with Database.open(empty_url, check=False) as database:
        upgrade_schema(database, to="0001")
        run = schema._run_migrations

        def fail_at_the_end(connection: sa.Connection, to: str) -> None:
            run(connection, to)
            raise RuntimeError("power cut")

        monkeypatch.setattr(schema, "_run_migrations", fail_at_the_end)
        with pytest.raises(RuntimeError, match="power cut"):
            upgrade_schema(database)
        monkeypatch.undo()
        with database.reading() as connection:
            assert not sa.inspect(connection).has_table("drafts")
        assert upgrade_schema(database) == ("0001", HEAD)


def test_a_newer_schema_is_refused(job_url: str, job_database: Database) -> None:
    with job_database.transaction() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for act in (lambda: Database.open(job_url), lambda: upgrade_schema(job_database)):
        with pytest.raises(SchemaError, match=r"schema version 9999, this mmrl knows up to .*`mmrl db upgrade`"):
            act()


def test_tables_of_another_program_are_left_alone(empty_url: str) -> None:
    with Database.open(empty_url, check=False) as database:
        with database.transaction() as connection:
            connection.execute(sa.text("CREATE TABLE theirs (id INTEGER)"))
        with pytest.raises(SchemaError, match="holds tables that are not mmrl's"):
            Database.open(empty_url)
        with pytest.raises(SchemaError, match="holds tables that are not mmrl's"):
            upgrade_schema(database)


def test_the_command_tells_and_upgrades(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from mmrl.cli.app import main

    with Database.open(empty_url, check=False) as database:
        upgrade_schema(database, to="0001")
    assert main(["db", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "older"
    assert main(["db", "status"]) == 1
    assert "version 0001, older than" in capsys.readouterr().out
    assert main(["db", "upgrade", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["before"], report["after"]) == ("0001", HEAD)
    assert main(["db", "upgrade"]) == 0
    assert f"has version {HEAD} already" in capsys.readouterr().out
    assert main(["db", "status"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_an_upgrade_brings_the_data_sets_of_the_home_into_the_catalogue(empty_url: str) -> None:
    from mmrl.data.registry import register
    from mmrl.jobs.catalogue import Catalogue
    from mmrl.types import Message, Sample, TextPart

    sample = Sample("s1", (Message("user", (TextPart("2+2"),)),), answer="4")
    info = register("sums", {"train": [sample]}, source="by hand")
    with Database.open(empty_url) as database:
        assert [(row.name, row.version, row.num_rows) for row in Catalogue(database).all()] == [
            ("sums", info.version, 1)
        ]


def test_preferences_between_two_answers_are_marks_after_the_upgrade(empty_url: str) -> None:
    answers = [Answer("step-0", 0), Answer("step-9", 0), Answer("step-9", 1)]
    values = [{"evaluation": each.source, "sample_idx": each.sample_idx} for each in answers]
    rows = ((0, 1, "b", "a"), (2, 1, "a", "b"), (0, 1, "a", "both_bad"))
    with Database.open(empty_url, check=False) as database:
        upgrade_schema(database, to="0002")
        _write_old_rows(database)
        with database.transaction() as connection:
            for number, (one, other, left, choice) in enumerate(rows):
                row = {"id": str(number), "a": json.dumps(values[one]), "b": json.dumps(values[other])}
                connection.execute(
                    sa.text(
                        "INSERT INTO preferences (id, panel_id, prompt_id, a_sample, b_sample, left_is, choice, "
                        "reason, user_id, created_at) VALUES (:id, 'panel', 'p', :a, :b, :left, :choice, 'why', 'u', 2)"
                    ),
                    row | {"left": left, "choice": choice},
                )
        upgrade_schema(database)
        found = Marks(database, Users(database).add("reader", role="viewer")).of_source("panel")
    first, second, third = answers
    assert [(mark.item, mark.answers, mark.shown, mark.choice) for mark in found] == [
        (item_key("p", (second, third)), (second, third), (1, 0), "a"),
        (item_key("p", (first, second)), (first, second), (0, 1), "both_bad"),
    ], "answers in an order of their own; of two marks of one pair the later one"
    assert {(mark.reason, mark.tags, mark.user_id) for mark in found} == {("why", (), "u")}


_OLD_JOB = {
    "id": "old-job", "kind": "noop", "name": "x", "owner_id": "u", "config": '{"name": "x", "kind": "noop"}',
    "config_sha256": "0", "code_version": "0", "data_hashes": "{}", "state": "queued", "desired": "run",
    "pool": "default", "backend": "process", "cpus": 1, "gpus": 0, "priority": 0, "available_at": 0.0,
    "num_waited_for": 1, "attempt": 0, "max_attempts": 3, "retries": 0, "lease_epoch": 0, "step": 4,
    "run_dir": "/r", "created_at": 1.0,
}  # fmt: skip


def _write_old_rows(database: Database) -> None:
    """In plain SQL, as the older version wrote them: the tables of this code may have other columns."""
    with database.transaction() as connection:
        connection.execute(sa.text("INSERT INTO users (id, name, role, created_at) VALUES ('u', 'ann', 'member', 1.0)"))
        connection.execute(sa.text("INSERT INTO pools (name) VALUES ('default')"))
        names = ", ".join(_OLD_JOB)
        values = ", ".join(f":{name}" for name in _OLD_JOB)
        connection.execute(sa.text(f"INSERT INTO jobs ({names}) VALUES ({values})"), _OLD_JOB)
        connection.execute(
            sa.text(
                "INSERT INTO job_events (job_id, attempt, at, cause, actor, payload) "
                "VALUES ('old-job', 0, 1.0, 'submit', 'user:u', :payload)"
            ),
            {"payload": '{"word": "no"}'},
        )


def _old_lease(database: Database, worker: Leases) -> Any:
    from mmrl.jobs.records import Lease

    with database.transaction() as connection:
        connection.execute(
            sa.text(
                "UPDATE jobs SET state = 'running', worker_id = :worker, lease_epoch = 1, attempt = 1, "
                "lease_expires_at = :until WHERE id = 'old-job'"
            ),
            {"worker": worker.worker_id, "until": database.now(connection) + 2.0},
        )
    return Lease("old-job", worker.worker_id, 1, 1, "token", (), None)  # type: ignore[arg-type]
