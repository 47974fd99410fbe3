"""`mmrl job logs`, also of a job that is followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from job_commands import Run, submitted

from mmrl.cli.job_follow import log_sources
from mmrl.errors import NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import JobState
from mmrl.runs.run_logs import RunLogs


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


def test_an_attempt_that_waits_for_its_inputs_has_no_log_yet(config: Path, mmrl: Run) -> None:
    with Database.open() as database:
        job = replace(Jobs(database).get(submitted(mmrl, config)["id"]), attempt=1, state=JobState.STARTING)
    assert log_sources(job, RunLogs(job.run_dir), stream="stderr") == {}
    with pytest.raises(NotFoundError, match="not on this machine"):
        log_sources(replace(job, state=JobState.RUNNING), RunLogs(job.run_dir), stream="stderr")


def test_a_new_attempt_and_a_log_that_was_cut_off_are_followed(
    config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(mmrl, config)
    first, second = (Path(job["run_dir"]) / f"attempt-{number}" / "logs" / "stderr.log" for number in (1, 2))
    for log in (first, second):
        log.parent.mkdir(parents=True)
    first.write_bytes("one\nzw\u00f6".encode()[:-1])

    def a_new_attempt() -> None:
        first.write_bytes("one\nzw\u00f6lf\n".encode())
        second.write_text("two, and more\n")

    with Database.open() as database:
        rounds = iter([a_new_attempt, lambda: second.write_text("cut\n"), lambda: Jobs(database).cancel(job["id"])])
        monkeypatch.setattr("time.sleep", lambda seconds: next(rounds)())
        code, out, _ = mmrl("job", "logs", "probe", "-f")
    assert (code, out) == (7, "one\nzw\u00f6lf\ntwo, and more\ncut\n")


def test_one_attempt_is_read_and_not_followed(config: Path, mmrl: Run) -> None:
    submitted(mmrl, config)
    code, out, err = mmrl("job", "logs", "probe", "-f", "--attempt", 1)
    assert (code, out) == (2, "")
    assert "over all its attempts" in err
