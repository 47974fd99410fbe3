"""`mmrl job list` and `show`, and the comparison of two jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_commands import Run, submitted
from job_rows import claim, join

from mmrl.cli.output import text_width
from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.fetching import FETCHING
from mmrl.jobs.index import IndexBatch
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import CheckpointRow, Lease
from mmrl.jobs.states import JobState


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


def index_checkpoint(database: Database, lease: Lease, step: int) -> None:
    event = {"kind": "checkpoint", "step": step}
    Leases(database, lease.worker_id).index(
        lease,
        IndexBatch(checkpoints=[CheckpointRow(step, f"/x/step-{step}")], history=[event], history_from=step // 2 - 1),
    )


def test_a_starting_job_tells_what_it_fetches_until_it_has_a_process(
    config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(mmrl, config)
    with Database.open() as database:
        leases = join(database)
        lease = claim(leases)
        assert json.loads(mmrl("job", "show", "probe", "--json")[1])["pending"] is None
        leases.event(lease, FETCHING, {"message": "fetches the whole run of job x (sft) from s3://team/x"})
        assert "starting (fetching)" in mmrl("job", "list")[1]
        shown = " ".join(mmrl("job", "show", "probe")[1].split())
        assert " waits fetches the whole run of job x (sft) from s3://team/x, since " in shown
        pending = json.loads(mmrl("job", "show", "probe", "--json")[1])["pending"]
        assert (pending["code"], pending["position"]) == ("fetching", None)

        rounds = iter(range(9))

        def go_on(_: float) -> None:
            if next(rounds) == 1:
                leases.move(lease, JobState.STOPPING, cause="cancel")
                leases.move(lease, JobState.CANCELLED, cause="cancel")

        with monkeypatch.context() as patch:
            patch.setattr("time.sleep", go_on)
            code, _, err = mmrl("job", "logs", "-f", job["id"])
        assert code == 7
        assert err.count("probe: starting; fetches the whole run of job x (sft) from s3://team/x, since ") == 1
        submitted(mmrl, config)
        second = claim(leases)
        leases.event(second, FETCHING, {"message": "fetches the whole run"})
        leases.launched(second, log_uri="/x/logs")
        assert "fetch" not in mmrl("job", "list")[1]


def test_an_empty_answer_says_what_is_missing(config: Path, mmrl: Run) -> None:
    assert "`mmrl job submit CONFIG` makes one" in mmrl("job", "list")[2]
    submitted(mmrl, config)
    assert mmrl("job", "list", "--state", "failed")[1:] == ("", "no job is like that\n")
    assert "never started" in mmrl("job", "logs", "probe")[2]
    code, out, err = mmrl("worker", "list")
    assert (code, out) == (0, "")
    assert "`mmrl worker start` starts one" in err


def test_the_configs_of_two_jobs_are_compared(config: Path, mmrl: Run) -> None:
    first, second = submitted(mmrl, config), submitted(mmrl, config, "noop.steps=5")
    differences = json.loads(mmrl("config", "diff", first["id"], second["id"], "--json")[1])
    assert differences == [{"key": "noop.steps", "first": 3, "second": 5}]
    assert json.loads(mmrl("config", "diff", config, second["id"], "--json")[1]) == differences


def test_lists_and_pages_fit_a_terminal_of_40_columns(config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a rather long name of a run"
    submitted(mmrl, config, "--name", name, "--tag", "baseline", "--note", "for the paper of next year")
    for module in ("output", "config"):
        monkeypatch.setattr(f"mmrl.cli.{module}.terminal_width", lambda: 40)
    for words in (("job", "list"), ("job", "show", name), ("config", "show", config)):
        code, out, _ = mmrl(*words)
        assert (code, [line for line in out.splitlines() if text_width(line) > 40]) == (0, []), words
        assert len(out.splitlines()) > 5, words
