"""`mmrl job cancel`, `pause`, `resume` and `wait` where no worker is."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from job_commands import Run, submitted


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


def test_ctrl_c_ends_the_wait_with_130_and_leaves_the_job(
    config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(mmrl, config)
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("time.sleep", lambda seconds: signal.raise_signal(signal.SIGINT))
            code, out, _ = mmrl("job", "wait", "probe")
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert (code, out) == (130, "")
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


def test_one_job_that_has_ended_keeps_none_of_the_others_from_being_cancelled(config: Path, mmrl: Run) -> None:
    first, second, third = (submitted(mmrl, config) for _ in range(3))
    mmrl("job", "cancel", second["id"])
    code, out, err = mmrl("job", "pause", first["id"], second["id"], third["id"])
    assert (code, out.split()) == (5, [first["id"], third["id"]])
    assert f"job {second['id']} cannot be paused: it is cancelled" in err
    assert [job["state"] for job in json.loads(mmrl("job", "list", "--json")[1])] == ["paused", "cancelled", "paused"]
    code, out, _ = mmrl("job", "cancel", first["id"], "nothing-of-the-kind")
    assert (code, out) == (3, ""), "all are looked up first"
