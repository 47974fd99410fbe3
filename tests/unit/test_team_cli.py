"""`mmrl pool`, `mmrl user`, `mmrl token`, and commands that act for whom a token speaks for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from config_files import write_config
from job_rows import join

from mmrl.cli.app import main
from mmrl.errors import ConfigError
from mmrl.jobs.database import Database
from mmrl.jobs.users import TOKEN_PREFIX
from mmrl.jobs.worker.ray_launcher import check_cluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    monkeypatch.delenv("MMRL_TOKEN", raising=False)
    (tmp_path / "home").mkdir()
    shutil.copy(sqlite_template, tmp_path / "home" / "mmrl.db")
    return tmp_path / "home"


@pytest.fixture
def mmrl(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "noop.yaml"
    path.write_text("name: probe\nkind: noop\n")
    return path


def test_a_pool_is_limited_opened_again_and_told(home: Path, mmrl: Run, config: Path) -> None:
    with Database.open() as database:
        join(database, pool="gpu", cpus=8)
    mmrl("job", "submit", config, "--pool", "gpu")
    assert mmrl("pool", "set", "gpu", "--capacity", 0)[0] == 0
    [pool] = json.loads(mmrl("pool", "list", "--json")[1])
    assert (pool["name"], pool["capacity"], pool["num_queued"], pool["cpus"]) == ("gpu", 0, 1, 8)
    assert "the pool is full: 0 of 0 jobs at once" in mmrl("job", "show", "probe")[1]
    assert json.loads(mmrl("pool", "set", "gpu", "--capacity", "none", "--json")[1])["capacity"] is None
    header, row = mmrl("pool", "list")[1].splitlines()
    assert header.split() == ["pool", "capacity", "running", "waiting", "workers", "free", "cpus", "free", "gpus"]
    assert row.split() == ["gpu", "none", "0", "1", "1", "8/8", "0/0"]


@pytest.mark.parametrize("capacity", ["-1", "two", "1.5", str(2**31)])
def test_a_capacity_that_cannot_be_is_refused(capacity: str, mmrl: Run) -> None:
    code, _, err = mmrl("pool", "set", "gpu", f"--capacity={capacity}")
    assert (code, "give a whole number from 0, or none" in err) == (2, True)
    assert mmrl("pool", "set", "a b", "--capacity", 1)[0] == 2


def test_people_are_added_listed_changed_and_disabled(mmrl: Run) -> None:
    code, out, err = mmrl("user", "add", "Ann", "--email", "Ann@lab.org", "--role", "viewer")
    ann = out.strip()
    assert (code, err) == (0, "Ann: viewer\n")
    assert json.loads(mmrl("user", "role", "ann@lab.org", "member", "--json")[1])["role"] == "member"
    assert mmrl("user", "disable", "ann")[1].strip() == ann
    found = {user["id"]: user for user in json.loads(mmrl("user", "list", "--json")[1])}
    assert (found[ann]["email"], found[ann]["is_disabled"]) == ("ann@lab.org", True)
    assert mmrl("user", "enable", ann)[2] == "Ann: member\n"
    mmrl("user", "add", "Ann")
    code, _, err = mmrl("user", "role", "Ann", "admin")
    assert code == 3
    assert ann in err
    assert mmrl("user", "role", "nobody", "admin")[0] == 3
    assert mmrl("user", "add", "Eve", "--email", "ann@lab.org")[0] == 5
    assert mmrl("user", "add", "Eve", "--role", "king")[0] == 2
    me = next(user["id"] for user in found.values() if user["role"] == "admin")
    code, _, err = mmrl("user", "role", me, "viewer")
    assert (code, "the last admin" in err) == (5, True)


def test_a_token_is_told_once_and_its_text_is_kept_nowhere(home: Path, mmrl: Run) -> None:
    mmrl("user", "add", "Ann")
    code, out, err = mmrl("token", "create", "ci", "--user", "Ann", "--days", 30)
    text = out.strip()
    assert (code, text.startswith(TOKEN_PREFIX), out.count("\n")) == (0, True, 1)
    assert text not in err
    assert "control, read, submit" in err
    [listed] = json.loads(mmrl("token", "list", "--user", "Ann", "--json")[1])
    assert (listed["name"], listed["scopes"]) == ("ci", ["control", "read", "submit"])
    assert text not in json.dumps(listed)
    for file in home.rglob("*"):
        assert not file.is_file() or text.encode() not in file.read_bytes()
    code, _, err = mmrl("token", "revoke", text, "--user", "Ann")
    assert (code, "no command line" in err, text in err) == (3, True, False)
    assert mmrl("token", "revoke", "ci", "--user", "Ann")[0] == 0
    assert json.loads(mmrl("token", "list", "--user", "Ann", "--json")[1]) == []
    assert mmrl("token", "create", "x", "--user", "Ann", "--scope", "admin")[0] == 2


def test_commands_act_for_whom_the_token_speaks(mmrl: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = mmrl("user", "add", "Ann")[1].strip()
    others = mmrl("job", "submit", config)[1].strip()
    token = mmrl("token", "create", "ci", "--user", "Ann")[1].strip()
    reader = mmrl("token", "create", "eyes", "--user", "Ann", "--scope", "read")[1].strip()
    monkeypatch.setenv("MMRL_TOKEN", token)
    own = json.loads(mmrl("job", "submit", config, "--json")[1])
    assert own["owner"] == ann
    assert mmrl("job", "cancel", own["id"])[0] == 0
    code, _, err = mmrl("job", "cancel", others)
    assert (code, "Ann may not change this job" in err) == (2, True)
    for words in (("pool", "set", "p", "--capacity", 1), ("user", "add", "Eve"), ("worker", "drain")):
        assert mmrl(*words)[0] in (2, 3)
    assert json.loads(mmrl("token", "list", "--json")[1])[0]["user"] == ann
    monkeypatch.setenv("MMRL_TOKEN", reader)
    assert mmrl("job", "list")[0] == 0
    code, _, err = mmrl("job", "submit", config)
    assert (code, "scope submit" in err) == (2, True)
    monkeypatch.setenv("MMRL_TOKEN", f"{TOKEN_PREFIX}wrong")
    code, _, err = mmrl("job", "list")
    assert (code, "MMRL_TOKEN: this token is not valid" in err, "wrong" in err) == (2, True, False)
    for empty in ("", " "):
        monkeypatch.setenv("MMRL_TOKEN", empty)
        code, _, err = mmrl("job", "cancel", others)
        assert (code, "MMRL_TOKEN is set and empty" in err) == (2, True)


def test_a_dry_run_checks_what_submit_would_and_leaves_nothing(mmrl: Run, config: Path) -> None:
    code, out, _ = mmrl("job", "submit", config, "--dry-run", "--pool", "gpu", "--cpus", 2)
    assert code == 0
    assert "job: 2 cpus, 0 gpus in pool gpu; it would wait: 1 in the queue of pool gpu: no worker" in out
    told = json.loads(mmrl("job", "submit", config, "--dry-run", "--json")[1])
    assert (told["preflight"], told["job"]["name"]) == (None, "probe")
    assert mmrl("job", "submit", config, "--dry-run", "--after", "nobody")[0] == 3
    assert mmrl("job", "submit", config, "--dry-run", "--pool", "a/b")[0] == 2
    mmrl("job", "submit", config, "--idempotency-key", "k")
    assert mmrl("job", "submit", config, "name=other", "--dry-run", "--idempotency-key", "k")[0] == 5
    assert len(json.loads(mmrl("job", "list", "--json")[1])) == 1
    assert [pool["name"] for pool in json.loads(mmrl("pool", "list", "--json")[1])] == ["default"]
    assert "trains nothing" in mmrl("run", config, "--dry-run")[1]


def test_a_dry_run_takes_what_submit_takes_of_a_job_that_has_not_ended(mmrl: Run, config: Path, tmp_path: Path) -> None:
    earlier = mmrl("job", "submit", config)[1].strip()
    later = (write_config(tmp_path, name="later.yaml"), f"model.path=job:{earlier}/model", "--after", earlier)
    code, out, err = mmrl("job", "submit", *later, "--dry-run")
    assert (code, err) == (0, "")
    assert f"job:{earlier}/model: job" in out
    assert "is queued; it is looked up when the job starts\npreflight: left out" in out
    told = json.loads(mmrl("job", "submit", *later, "--dry-run", "--json")[1])
    assert (told["preflight"], len(told["unready"])) == (None, 1)
    assert mmrl("job", "submit", *later)[0] == 0


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nonsense", "is no URL of a Ray dashboard"),
        ("ftp://host", "is no URL of a Ray dashboard"),
        ("http://127.0.0.1:99999", "Port out of range"),
    ],
)
def test_a_worker_does_not_start_for_a_ray_that_is_not_there(address: str, why: str, mmrl: Run) -> None:
    code, _, err = mmrl("worker", "start", "--until-idle", "--ray-address", address)
    assert (code, why in err) == (2, True)
    assert json.loads(mmrl("worker", "list", "--all", "--json")[1]) == []


def test_a_ray_that_does_not_answer_is_waited_for_and_then_told() -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match=r"--ray-address http://127\.0\.0\.1:1: no Ray dashboard answers there"):
        check_cluster("http://127.0.0.1:1", wait_s=0.05, say=said.append)
    assert [text.partition(",")[0] for text in said] == ["waits for the Ray dashboard at http://127.0.0.1:1"]
