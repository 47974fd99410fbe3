"""Jobs from a shell without a terminal: a script of submit, wait, export and exit codes, its JSON read by jq."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import small_config

from mmrl.config import dump_yaml
from mmrl.runs.reader import RunReader

NOOP = "name: my run/1\nkind: noop\nnoop: {steps: 50, step_s: 0.1}\n"
SCRIPT = r"""
set -euo pipefail
mmrl worker start --port 0 2> "$HERE/worker.log" &
worker=$!
trap 'kill $worker; wait $worker' EXIT

first=$(mmrl job submit "$HERE/train.yaml" --idempotency-key nightly)
again=$(mmrl job submit "$HERE/train.yaml" --idempotency-key nightly)
test "$first" = "$again"
second=$(mmrl job submit "$HERE/noop.yaml" noop.steps=1 noop.exit_code=9 --after "$first" --json | jq -r .id)
third=$(mmrl job submit "$HERE/noop.yaml" --after "$second" --json | jq -r .id)

mmrl job wait "$first" --timeout 200 --json | jq -e '.[0].state == "succeeded" and .[0].step == 2' > /dev/null
code=0; mmrl job wait "$second" || code=$?; echo "second $code"
code=0; mmrl job wait "$third" || code=$?; echo "third $code"
code=0; mmrl job show nothing-of-the-kind 2> "$HERE/unknown" || code=$?; echo "unknown $code"
code=0; mmrl job submit "$HERE/noop.yaml" noop.stepz=1 2> "$HERE/wrong" || code=$?; echo "wrong $code"
code=0; mmrl job submit "$HERE/train.yaml" seed=5 --idempotency-key nightly 2> "$HERE/conflict" || code=$?
echo "conflict $code"

run_dir=$(mmrl job show "$first" --json | jq -r .run_dir)
mmrl checkpoint export "$run_dir" --step 2 --out "$HERE/exported" > /dev/null
test -f "$HERE/exported/config.json"
mmrl job list --limit 10 --json | jq -r '.[] | [.kind, .state, .attempt] | @tsv'
mmrl job logs "$first" | grep -c "step 2/2"
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    (tmp_path / "noop.yaml").write_text(NOOP)
    return os.environ | {
        "MMRL_JOBS_POLL_S": "0.1",
        "MMRL_JOBS_BEAT_S": "0.2",
        "MMRL_JOBS_LEASE_S": "20",
        "HERE": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def test_a_script_submits_waits_exports_and_reads_json(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "train.yaml").write_text(dump_yaml(small_config(tmp_path, steps=2, checkpoint={"every": 2})))
    done = subprocess.run(
        ["bash", "-c", SCRIPT],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr + (tmp_path / "worker.log").read_text()
    assert done.stdout.splitlines() == [
        "second 6",
        "third 7",
        "unknown 3",
        "wrong 2",
        "conflict 5",
        "noop\tcancelled\t0",
        "noop\tfailed\t1",
        "rl\tsucceeded\t1",
        "1",
    ]
    assert "noop.steps" in (tmp_path / "wrong").read_text()


def test_a_job_that_could_not_begin_tells_why(tmp_path: Path, environment: dict[str, str]) -> None:
    taken = tmp_path / "taken"
    mmrl = [sys.executable, "-m", "mmrl"]
    submit = [*mmrl, "job", "submit", str(tmp_path / "noop.yaml"), "--run-dir", str(taken)]
    job = subprocess.run(submit, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run(
        [*mmrl, "train", str(tmp_path / "noop.yaml"), "noop.steps=1", "--run-dir", str(taken)], env=environment
    )
    assert done.returncode == 0
    subprocess.run([*mmrl, "worker", "start", "--until-idle"], env=environment, capture_output=True, check=True)
    done = subprocess.run([*mmrl, "job", "logs", "-f", job], env=environment, capture_output=True, text=True)
    assert done.returncode == 6
    assert f"my run/1: failed; it never started: {taken} holds attempt 1 of a run already" in done.stderr


def start_run(tmp_path: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mmrl", "run", str(tmp_path / "noop.yaml"), *words]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def lines_until(process: subprocess.Popen[str], beginning: str) -> Iterator[str]:
    assert process.stderr is not None
    for line in process.stderr:
        yield line
        if line.startswith(beginning):
            return
    raise AssertionError(f"ended without {beginning!r}")


def jobs(environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "mmrl", "job", "list", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_run_is_a_job_with_a_worker_of_its_own(tmp_path: Path, environment: dict[str, str]) -> None:
    process = start_run(tmp_path, environment, "noop.steps=3", "--json")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert re.fullmatch(r"my-run-1-\d{8}-\d{6}", Path(result["run_dir"]).name)
    assert result["steps"] == 3
    assert "noop/value" in result["metrics"]
    assert "step 3/3" in err
    (job,) = jobs(environment)
    assert (job["id"], job["state"], job["attempt"], job["step"]) == (result["job"], "succeeded", 1, 3)


@pytest.mark.parametrize(
    ("settings", "code"), [("noop.exit_code=3", 3), ("noop.exit_code=6", 6), ("noop.kill_at_step=2", 6)]
)
def test_a_failed_run_ends_as_the_trainer_did(
    settings: str, code: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A trainer that kills itself at every attempt is started again, but not for ever."""
    environment |= {"MMRL_JOBS_RETRY_DELAY_S": "0"}
    process = start_run(tmp_path, environment, "noop.steps=2", settings)
    _, err = process.communicate(timeout=200)
    assert process.returncode == code, err
    (job,) = jobs(environment)
    assert job["state"] == "failed"
    assert err.count(job["error"]) == 1, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 7)])
def test_an_interrupted_run_ends_with_a_checkpoint_and_goes_on(
    number: signal.Signals, code: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    process = start_run(tmp_path, environment)
    seen = list(lines_until(process, "step 1/"))
    process.send_signal(number)
    begin = time.monotonic()
    _, err = process.communicate(timeout=100)
    assert time.monotonic() - begin < 15
    assert process.returncode == code, "".join(seen) + err
    (job,) = jobs(environment)
    assert job["state"] == "cancelled"
    assert 0 < job["step"] < 50
    assert f"mmrl job resume {job['id'][-8:]}" in err
    subprocess.run([sys.executable, "-m", "mmrl", "job", "resume", job["id"]], env=environment, check=True, timeout=60)
    child = jobs(environment)[0]
    assert child["state"] == "queued"
    worker = [sys.executable, "-m", "mmrl", "worker", "start", "--until-idle"]
    subprocess.run(worker, env=environment, check=True, timeout=200, capture_output=True)
    child = jobs(environment)[0]
    assert (child["state"], child["step"]) == ("succeeded", 50)
    assert RunReader(Path(child["run_dir"])).metrics()[0].step == job["step"] + 1
