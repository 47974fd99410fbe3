"""Times of leases from jobs.yaml and the environment; ids; addresses of databases; where SQLite may lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.errors import ConfigError
from mmrl.jobs.database import Database, parse_url
from mmrl.jobs.ids import new_id, short_id
from mmrl.jobs.retry import Failure, retry_delay
from mmrl.jobs.settings import JobsSettings, load_settings
from mmrl.jobs.sqlite import filesystem_of, refuse_network_filesystem

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda rw
30 22 0:50 / /home rw shared:1 - nfs4 server:/home rw
31 22 0:51 / /home/me/scratch rw - xfs /dev/sdb rw
32 22 0:52 / /mnt/my\\040share rw - cifs //server/share rw
33 22 0:53 / /data/s3 rw - fuse.mountpoint-s3 bucket rw
"""


def test_the_environment_goes_over_the_file_and_the_file_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    assert load_settings() == JobsSettings()
    (tmp_path / "jobs.yaml").write_text("lease_s: 30\nbeat_s: 1e1\nmembers_may_run_code: true\n")
    monkeypatch.setenv("MMRL_JOBS_BEAT_S", "2.5")
    found = load_settings()
    assert (found.lease_s, found.beat_s, found.members_may_run_code, found.grace_s) == (30.0, 2.5, True, 60.0)


@pytest.mark.parametrize(
    ("name", "words"), [("LEESE_S", "did you mean MMRL_JOBS_LEASE_S"), ("X", "known are MMRL_JOBS_BEAT_S, ")]
)
def test_a_variable_of_no_setting_is_refused(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MMRL_JOBS_{name}", "3")
    with pytest.raises(ConfigError, match=f"MMRL_JOBS_{name}.*{words}"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leese_s: 3", "leese_s"),
        ("lease_s: long", "lease_s"),
        ("lease_s: 5", r"beat_s \(10\) must be at most half of lease_s \(5\)"),
        ("- 3", "must be a map of settings"),
    ],
)
def test_wrong_settings_are_told_with_their_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_settings(file)
    assert str(file) in str(caught.value)


def test_ids_sort_by_the_time_of_the_clock_also_within_one_tick() -> None:
    ids = [new_id(1_700_000_000.0 + index // 3 * 0.001) for index in range(300)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 300
    assert all(one[14] == "7" and one[19] in "89ab" for one in ids)
    assert short_id(ids[0]) == ids[0][-8:]


def test_the_filesystem_that_holds_a_path_is_the_innermost_one() -> None:
    found = {
        path: filesystem_of(Path(path), mounts=MOUNTS)
        for path in ("/var/x.db", "/home/me/x.db", "/home/me/scratch/x.db", "/mnt/my share/x.db", "/homestead/x.db")
    }
    assert found == {
        "/var/x.db": "ext4",
        "/home/me/x.db": "nfs4",
        "/home/me/scratch/x.db": "xfs",
        "/mnt/my share/x.db": "cifs",
        "/homestead/x.db": "ext4",
    }


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "lustre"])
def test_sqlite_on_a_network_filesystem_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.jobs.sqlite.filesystem_of", lambda path: kind)
    with pytest.raises(ConfigError, match=rf"would lie on a network filesystem \({kind}\).*MMRL_DATABASE_URL"):
        refuse_network_filesystem(tmp_path / "mmrl.db")
    with pytest.raises(ConfigError, match="network filesystem"):
        Database.open(f"sqlite:///{tmp_path}/mmrl.db", settings=JobsSettings())


def test_here_the_database_may_lie(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path)
    refuse_network_filesystem(tmp_path / "mmrl.db")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mysql://me:hunter2@host/x", "names a mysql database that cannot hold jobs"),
        ("not an address hunter2", "is no address of a database"),
        ("sqlite://", "names a sqlite database that cannot hold jobs"),
        ("sqlite:///:memory:", "names a sqlite database that cannot hold jobs"),
    ],
)
def test_other_databases_are_refused_and_no_password_is_shown(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_url(text)
    assert "hunter2" not in str(caught.value)


def test_no_password_is_in_what_is_told_of_a_database() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/x?sslpassword=swordfish"
    database = Database(parse_url(url), JobsSettings())
    shown = repr(database) + database.shown_url + repr(database.engine)
    assert "hunter2" not in shown
    assert "swordfish" not in shown
    assert "127.0.0.1" in shown


def test_a_server_that_does_not_answer_is_told_without_the_password() -> None:
    from mmrl.jobs.errors import DatabaseUnavailableError

    with pytest.raises(DatabaseUnavailableError, match="cannot be reached") as caught:
        Database.open("postgresql://me:hunter2@127.0.0.1:1/x", settings=JobsSettings())
    assert "hunter2" not in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("error_class", "retries", "last", "again"),
    [
        ("killed", 0, None, True),
        ("worker_lost", 1, "worker_lost", True),
        ("launch", 2, None, False),
        ("config", 0, None, False),
        ("data", 0, None, False),
        ("code", 0, None, False),
        ("out_of_memory", 0, None, True),
        ("out_of_memory", 1, "killed", True),
        ("out_of_memory", 1, "out_of_memory", False),
        ("dependency", 0, None, False),
    ],
)
def test_only_infrastructure_is_tried_again(error_class: str, retries: int, last: str | None, again: bool) -> None:
    failure = Failure(error_class, "")  # type: ignore[arg-type]
    delay = retry_delay(failure, retries=retries, max_attempts=3, last_class=last, settings=JobsSettings())
    assert (delay is not None) == again


def test_each_wait_is_twice_the_one_before_up_to_a_limit() -> None:
    settings = JobsSettings(retry_delay_s=10, max_retry_delay_s=35)
    failure = Failure("killed", "")
    for retries, low in enumerate((10, 20, 35, 35)):
        delay = retry_delay(failure, retries=retries, max_attempts=9, last_class=None, settings=settings)
        assert delay is not None
        assert low <= delay <= low * 1.25


def test_whoever_knows_better_overrides_the_class() -> None:
    for retryable in (True, False):
        failure = Failure("killed", "", retryable=retryable)
        delay = retry_delay(failure, retries=0, max_attempts=3, last_class=None, settings=JobsSettings())
        assert (delay is not None) == retryable


def test_the_job_database_is_used_without_torch_ray_or_the_readers_of_data() -> None:
    code = (
        "import sys, mmrl.jobs.jobs, mmrl.jobs.leases, mmrl.jobs.users\n"
        "slow = {'pyarrow', 'numpy', 'alembic', 'psycopg'} & set(sys.modules)\n"
        "import mmrl.jobs.catalogue, mmrl.jobs.schema, mmrl.jobs.outbox\n"
        "heavy = {'torch', 'transformers', 'ray', 'vllm', 'streamlit'} & set(sys.modules)\n"
        "assert not slow | heavy, slow | heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
