"""`mmrl job logs`, also of a job that is followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_commands import Run, submitted
from job_rows import claim, join

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import JobState


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


def test_a_job_that_ended_before_it_began_has_no_log_and_is_not_elsewhere(config: Path, mmrl: Run) -> None:
    submitted(mmrl, config)
    with Database.open() as database:
        leases = join(database)
        lease = claim(leases)
        assert mmrl("job", "logs", "probe")[:2] == (0, "")
        leases.move(lease, JobState.STOPPING, cause="cancel")
        leases.move(lease, JobState.CANCELLED, cause="cancel")
    code, out, err = mmrl("job", "logs", "-f", "probe")
    assert (code, out, err) == (7, "", "probe: cancelled; it never started\n")
    code, out, err = mmrl("job", "logs", "probe")
    assert (code, out) == (0, "")
    assert "cancelled, and never started" in err


@pytest.mark.parametrize("words", [("logs",), ("logs", "-f")])
def test_logs_of_a_run_on_another_machine_are_read_there(words: tuple[str, ...], config: Path, mmrl: Run) -> None:
    job = submitted(mmrl, config)
    with Database.open() as database:
        leases = join(database)
        leases.started(claim(leases), log_uri="/runs/probe/attempt-1/logs", pid=1)
    code, out, err = mmrl("job", *words, "probe")
    assert (code, out) == (3, "")
    assert f"{job['run_dir']}, is not on this machine" in err


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
