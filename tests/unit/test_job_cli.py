"""`mmrl job` on a database of its own, without a worker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_rows import claim, join

from mmrl.cli.app import main
from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.index import IndexBatch
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import CheckpointRow, Lease

NOOP = "name: probe\nkind: noop\nnoop: {steps: 3}\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose database is set up, to be copied: migrating takes longer than a test here."""
    from mmrl.jobs.database import Database

    home = tmp_path_factory.mktemp("empty") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(home))
        patch.delenv("MMRL_DATABASE_URL", raising=False)
        Database.open().close()
    return home


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> Path:
    shutil.copytree(empty_home, tmp_path / "home")
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    path = tmp_path / "noop.yaml"
    path.write_text(NOOP)
    return path


@pytest.fixture
def mmrl(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def submitted(mmrl: Run, config: Path, *words: object) -> dict[str, Any]:
    code, out, err = mmrl("job", "submit", config, *words, "--json")
    assert code == 0, err
    job: dict[str, Any] = json.loads(out)
    return job


def test_a_submitted_job_is_listed_with_the_names_that_scripts_read(config: Path, mmrl: Run) -> None:
    job = submitted(mmrl, config, "noop.steps=5", "--priority", 2, "--tag", "a", "--tag", "b", "--note", "first try")
    code, out, _ = mmrl("job", "list", "--json")
    (row,) = json.loads(out)
    assert code == 0
    assert row["id"] == job["id"]
    assert {name: row[name] for name in ("name", "kind", "state", "attempt", "step", "priority", "tags")} == {
        "name": "probe",
        "kind": "noop",
        "state": "queued",
        "attempt": 0,
        "step": 0,
        "priority": 2,
        "tags": ["a", "b"],
    }
    assert row["total_steps"] is None
    assert row["created_at"].endswith("Z")


def test_submit_prints_the_id_alone_on_stdout_and_why_it_waits_on_stderr(config: Path, mmrl: Run) -> None:
    code, out, err = mmrl("job", "submit", config)
    assert code == 0
    assert len(out.strip()) == 36
    assert "no worker for pool default" in err
    assert "mmrl worker start" in err


def test_list_is_newest_first_limited_and_filtered(config: Path, mmrl: Run) -> None:
    ids = [submitted(mmrl, config, "--name", f"probe-{index}")["id"] for index in range(3)]
    mmrl("job", "cancel", ids[0])
    assert [row["id"] for row in json.loads(mmrl("job", "list", "--json", "--limit", 2)[1])] == [ids[2], ids[1]]
    assert [row["id"] for row in json.loads(mmrl("job", "list", "--json", "--state", "cancelled")[1])] == [ids[0]]
    assert json.loads(mmrl("job", "list", "--json", "--kind", "rl")[1]) == []
    code, _, err = mmrl("job", "list", "--state", "done")
    assert code == 2
    assert "succeeded" in err


def test_list_finds_jobs_by_tag_and_by_words(config: Path, mmrl: Run) -> None:
    first = submitted(mmrl, config, "--tag", "baseline", "--tag", "old", "--note", "for the paper")
    submitted(mmrl, config, "--tag", "base")

    def found(*words: str) -> list[str]:
        return [row["id"] for row in json.loads(mmrl("job", "list", "--json", *words)[1])]

    assert found("--tag", "baseline") == found("--tag", "baseline", "--tag", "old") == [first["id"]]
    assert found("--search", "PAPER") == [first["id"]]
    assert found("--tag", "base", "--tag", "old") == found("--search", "nothing") == []


def test_the_same_key_gives_the_same_job_and_another_config_is_a_conflict(config: Path, mmrl: Run) -> None:
    first = submitted(mmrl, config, "--idempotency-key", "nightly")
    assert submitted(mmrl, config, "--idempotency-key", "nightly")["id"] == first["id"]
    code, _, err = mmrl("job", "submit", config, "noop.steps=9", "--idempotency-key", "nightly")
    assert code == 5
    assert "nightly" in err


def test_show_says_what_a_job_waits_for(config: Path, mmrl: Run) -> None:
    first = submitted(mmrl, config, "--name", "first")
    second = submitted(mmrl, config, "--name", "second", "--after", "first")
    detail = json.loads(mmrl("job", "show", "second", "--json")[1])
    assert detail["after"] == [first["id"]]
    assert detail["pending"]["code"] == "dependency"
    assert "first" in detail["pending"]["message"] or first["id"] in detail["pending"]["message"]
    assert detail["config"]["noop"]["steps"] == 3
    assert [event["to"] for event in detail["events"]] == ["queued"]
    code, out, _ = mmrl("job", "show", second["id"])
    assert code == 0
    assert "waits" in out


@pytest.mark.parametrize("command", ["show", "cancel", "pause", "resume", "retry", "logs", "wait"])
def test_an_unknown_job_ends_with_exit_code_3(command: str, config: Path, mmrl: Run) -> None:
    submitted(mmrl, config, "--name", "digits-grpo")
    code, out, err = mmrl("job", command, "digit-grpo")
    assert (code, out) == (3, "")
    assert "digits-grpo" in err


def test_a_queued_job_is_cancelled_at_once_and_wait_ends_with_7(config: Path, mmrl: Run) -> None:
    job = submitted(mmrl, config)
    code, out, err = mmrl("job", "cancel", "probe")
    assert (code, out.strip()) == (0, job["id"])
    assert "cancelled" in err
    assert mmrl("job", "wait", "probe")[0] == 7


def test_waiting_longer_than_asked_ends_with_1_and_leaves_the_job(config: Path, mmrl: Run) -> None:
    submitted(mmrl, config)
    code, _, err = mmrl("job", "wait", "probe", "--timeout", 0)
    assert code == 1
    assert "they stay as they are" in err
    assert json.loads(mmrl("job", "list", "--json")[1])[0]["state"] == "queued"


def test_a_paused_job_is_queued_again_and_a_cancelled_one_makes_a_child(config: Path, mmrl: Run) -> None:
    job = submitted(mmrl, config)
    assert json.loads(mmrl("job", "pause", "probe", "--json")[1])[0]["state"] == "paused"
    (resumed,) = json.loads(mmrl("job", "resume", "probe", "--json")[1])
    assert (resumed["id"], resumed["state"]) == (job["id"], "queued")
    mmrl("job", "cancel", "probe")
    (child,) = json.loads(mmrl("job", "resume", job["id"], "--json")[1])
    assert child["id"] != job["id"]
    assert child["run_dir"] != job["run_dir"]
    chain = json.loads(mmrl("job", "show", child["id"], "--lineage", "--json")[1])
    assert [each["id"] for each in chain] == [job["id"], child["id"]]
    code, out, _ = mmrl("job", "show", child["id"], "--lineage")
    assert code == 0
    assert child["id"][-8:] in out


def test_the_configs_of_two_jobs_are_compared(config: Path, mmrl: Run) -> None:
    first, second = submitted(mmrl, config), submitted(mmrl, config, "noop.steps=5")
    differences = json.loads(mmrl("config", "diff", first["id"], second["id"], "--json")[1])
    assert differences == [{"key": "noop.steps", "first": 3, "second": 5}]
    assert json.loads(mmrl("config", "diff", config, second["id"], "--json")[1]) == differences


def test_needs_follow_from_the_placement_unless_they_are_said(config: Path, mmrl: Run) -> None:
    from mmrl.jobs.from_config import Needs, needs_of

    ray = {"executor": "ray", "address": None, "pools": {"a": {"workers": 3, "cpus_per_worker": 2.0}}}
    for pool in ray["pools"].values():  # type: ignore[attr-defined]
        pool["gpus_per_worker"] = 0.5
    assert needs_of({"placement": ray}) == Needs(6, 2)
    assert needs_of({"placement": {**ray, "address": "auto"}}) == Needs(1, 0)
    assert needs_of({}) == Needs(1, 0)
    job = submitted(mmrl, config, "--cpus", 4, "--gpus", 1)
    assert (job["cpus"], job["gpus"]) == (4, 1)


TRAINING = """\
name: digits
model: {path: tiny}
data: {train: digits}
reward: [{type: judge, model: m, url: "http://127.0.0.1:1/v1", api_key: SECRET}]
"""


def test_x08_a_secret_in_a_job_is_refused_by_its_key_and_shown_nowhere(config: Path, mmrl: Run, tmp_path: Path) -> None:
    """A literal secret never reaches the database; a reference does."""
    literal = "sk-very-secret-0123456789abcdef"
    path = tmp_path / "judge.yaml"
    path.write_text(TRAINING.replace("SECRET", literal))
    code, out, err = mmrl("job", "submit", path)
    assert code == 2
    assert "reward.0.api_key" in err
    assert "env:NAME" in err
    assert literal not in out + err
    assert json.loads(mmrl("job", "list", "--json")[1]) == []
    path.write_text(TRAINING.replace("SECRET", "env:JUDGE_KEY"))
    job = submitted(mmrl, path)
    assert json.loads(mmrl("job", "show", job["id"], "--json")[1])["config"]["reward"][0]["api_key"] == "env:JUDGE_KEY"
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or literal.encode() not in file.read_bytes()


def test_logs_of_all_attempts_are_printed_inert(config: Path, mmrl: Run) -> None:
    job = submitted(mmrl, config)
    for attempt, text in ((1, "one\n\x1b[31mred\n"), (2, "three\nfour\n")):
        logs = Path(job["run_dir"]) / f"attempt-{attempt}" / "logs"
        logs.mkdir(parents=True)
        (logs / "stderr.log").write_text(text)
        (logs / "stdout.log").write_text(f"out {attempt}\n")
    assert mmrl("job", "logs", "probe")[1] == "one\n\\x1b[31mred\nthree\nfour\n"
    assert mmrl("job", "logs", "probe", "--attempt", 1, "--stdout")[1] == "out 1\n"
    assert mmrl("job", "logs", "probe", "--tail", 1)[1] == "four\n"
    code, _, err = mmrl("job", "logs", "probe", "--attempt", 3)
    assert code == 3
    assert "1, 2" in err


def test_following_a_job_that_has_ended_prints_its_log_and_ends_with_its_code(config: Path, mmrl: Run) -> None:
    job = submitted(mmrl, config)
    logs = Path(job["run_dir"]) / "attempt-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_bytes("zwölf ☃\n".encode() * 20000)
    mmrl("job", "cancel", "probe")
    code, out, err = mmrl("job", "logs", "-f", "probe")
    assert code == 7
    assert out == "zwölf ☃\n" * 20000
    assert "cancelled" in err


def test_a_run_directory_of_ones_own_is_made_whole(config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert submitted(mmrl, config, "--run-dir", "here")["run_dir"] == str(config.parent / "here")
    assert submitted(mmrl, config, "--run-dir", "s3://team/here")["run_dir"] == "s3://team/here"


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "CONFIG", "--priority", 10**20),
        ("submit", "CONFIG", "--delay", "1e300"),
        ("submit", "CONFIG", "--cpus", 10**12),
        ("submit", "CONFIG", "--run-dir", ""),
        ("list", "--limit", 10**30),
    ],
)
def test_values_beyond_every_bound_are_wrong_use_and_no_bug(words: tuple[Any, ...], config: Path, mmrl: Run) -> None:
    code, out, err = mmrl("job", *(config if word == "CONFIG" else word for word in words))
    assert (code, out) == (2, "")
    assert "bug" not in err
    assert json.loads(mmrl("job", "list", "--json")[1]) == []


def test_one_job_that_has_ended_keeps_none_of_the_others_from_being_cancelled(config: Path, mmrl: Run) -> None:
    first, second, third = (submitted(mmrl, config) for _ in range(3))
    mmrl("job", "cancel", second["id"])
    code, out, err = mmrl("job", "pause", first["id"], second["id"], third["id"])
    assert (code, out.split()) == (5, [first["id"], third["id"]])
    assert f"job {second['id']} cannot be paused: it is cancelled" in err
    assert [job["state"] for job in json.loads(mmrl("job", "list", "--json")[1])] == ["paused", "cancelled", "paused"]
    code, out, _ = mmrl("job", "cancel", first["id"], "nothing-of-the-kind")
    assert (code, out) == (3, ""), "all are looked up first"


def test_an_empty_answer_says_what_is_missing(config: Path, mmrl: Run) -> None:
    assert "`mmrl job submit CONFIG` makes one" in mmrl("job", "list")[2]
    submitted(mmrl, config)
    assert mmrl("job", "list", "--state", "failed")[1:] == ("", "no job is like that\n")
    assert "never started" in mmrl("job", "logs", "probe")[2]
    code, out, err = mmrl("worker", "list")
    assert (code, out) == (0, "")
    assert "`mmrl worker start` starts one" in err


def test_show_tells_what_a_job_that_does_not_run_needs(config: Path, mmrl: Run) -> None:
    """Paused; held by a worker that is gone; lost."""
    job = submitted(mmrl, config)
    mmrl("job", "pause", "probe")
    assert f"mmrl job resume {job['id'][-8:]}` goes on with it" in mmrl("job", "show", "probe")[1]
    mmrl("job", "resume", "probe")
    with Database.open() as database:
        lease = claim(join(database))
        for step in range(2, 32, 2):
            index_checkpoint(database, lease, step)
        assert f"worker       {lease.worker_id}\n" in mmrl("job", "show", "probe")[1]
        with database.transaction() as connection:
            just_now = database.now(connection) - 5.0
            connection.execute(tables.jobs.update().values(lease_expires_at=just_now))
        text = mmrl("job", "show", "probe")[1]
        assert "whose lease ran out" in text
        assert "checkpoints  step 2, 4 … 30 (15)" in text
        assert "queued → starting" in text, "checkpoints leave room for what happened"
        with database.transaction() as connection:
            connection.execute(tables.jobs.update().values(lease_expires_at=1.0))
    assert "its worker is gone" in mmrl("job", "show", "probe")[1]


def test_following_a_job_tells_why_nothing_is_written(config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job = submitted(mmrl, config)
    with Database.open() as database:
        jobs, waits = Jobs(database), iter([Jobs.pause, Jobs.resume, Jobs.cancel])
        monkeypatch.setattr("time.sleep", lambda seconds: next(waits)(jobs, job["id"]))
        code, out, err = mmrl("job", "logs", "probe", "-f")
    assert (code, out) == (7, "")
    lines = err.splitlines()
    assert [line.split(";")[0] for line in lines] == [
        "probe: queued", "probe: paused", "probe: queued", "probe: cancelled"
    ]  # fmt: skip
    assert "no worker for pool default" in lines[0]
    assert f"mmrl job resume {job['id'][-8:]}" in lines[1]


def index_checkpoint(database: Database, lease: Lease, step: int) -> None:
    event = {"kind": "checkpoint", "step": step}
    Leases(database, lease.worker_id).index(
        lease,
        IndexBatch(checkpoints=[CheckpointRow(step, f"/x/step-{step}")], history=[event], history_from=step // 2 - 1),
    )


def test_a_file_that_is_no_database_is_named(config: Path, mmrl: Run, tmp_path: Path) -> None:
    (tmp_path / "home" / "mmrl.db").write_text("nothing of the kind" * 100)
    code, _, err = mmrl("job", "list")
    assert code == 1
    assert f"{tmp_path}/home/mmrl.db is none of SQLite's, or is damaged" in err
    assert "bug" not in err


@pytest.mark.parametrize(("closed", "out"), [("2>&-", "[]\n"), (">&-", ""), ("<&- >&- 2>&-", "")])
def test_closed_streams_are_no_bug_and_errors_never_get_among_the_data(closed: str, out: str, config: Path) -> None:
    mmrl = f"{sys.executable} -m mmrl job"
    done = subprocess.run(["bash", "-c", f"{mmrl} list --json {closed}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, "")
    done = subprocess.run(["bash", "-c", f"{mmrl} show nope {closed}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")


def test_a_database_that_cannot_be_written_is_told_as_such(config: Path, mmrl: Run, tmp_path: Path) -> None:
    shutil.move(tmp_path / "home" / "mmrl.db", tmp_path / "home" / "other.db")
    (tmp_path / "home" / "mmrl.db").mkdir()
    code, _, err = mmrl("job", "list")
    assert code == 1
    assert f"{tmp_path}/home/mmrl.db cannot be opened for writing" in err
    assert "permissions of its folder" in err


def test_a_message_cannot_steer_the_terminal(config: Path, mmrl: Run) -> None:
    """x06: names come from whoever submits; the reader of a list or an error is somebody else."""
    code, _, err = mmrl("job", "show", "\x1b]0;mine\x07\u202e")
    assert code == 3
    submitted(mmrl, config)
    mmrl("job", "cancel", "probe")
    note = mmrl("job", "list", "--search", "\x1b[31m")[2]
    assert "\x1b" not in err + note


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mmrl job sho", ["show"]),
        ("mmrl job show pro", ["probe"]),
        ("mmrl job submit --after pro", ["probe"]),
        ("mmrl job list --state sta", ["starting"]),
        ("mmrl worker start --job pro", ["probe"]),
        ("mmrl wor", ["worker"]),
    ],
)
def test_the_shell_completes_commands_and_jobs(words: str, expected: list[str], config: Path, mmrl: Run) -> None:
    submitted(mmrl, config)
    environment = os.environ | {
        "_MMRL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    script = "import sys; from mmrl.cli.app import main; sys.argv[0] = 'mmrl'; sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == expected, done.stderr
