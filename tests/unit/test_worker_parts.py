"""The parts of a worker that need no process: what an end means, what is sent to a cluster, how files are followed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.errors import ConfigError
from mmrl.jobs.worker.gpus import SIMULATED_VARIABLE, chosen_gpus, make_probe
from mmrl.jobs.worker.launcher import Ended
from mmrl.jobs.worker.outcome import outcome_of
from mmrl.jobs.worker.processes import MARK_VARIABLE, ProcessIdentity, identity_of, members, own_identity
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.tail import read_lines
from mmrl.jobs.worker.working_dir import WorkingDir


def folder_with(path: Path, *events: dict[str, object], stderr: str = "") -> RunFolder:
    folder = RunFolder(path, 1)
    folder.logs_dir.mkdir(parents=True)
    folder.stderr.write_text(stderr)
    lines = "".join(json.dumps({"time": "2026-01-01T00:00:00+00:00", **event}) + "\n" for event in events)
    (folder.attempt_dir / "events.jsonl").write_text(lines)
    return folder


SUCCEEDED = {"kind": "state", "state": "succeeded"}


@pytest.mark.parametrize(
    ("ended", "events", "stderr", "error_class"),
    [
        (Ended(2), [], "error: run.yaml:3: optim.lr: got -1", "config"),
        (Ended(2), [{"kind": "failure", "message": "row 3", "error": "DataError"}], "", "data"),
        (Ended(3), [], "error: no data set", "config"),
        (Ended(1), [{"kind": "failure", "message": "KeyError: 'x'", "error": "KeyError"}], "", "code"),
        (Ended(6), [{"kind": "failure", "message": "reward failed on 60 %", "error": "RunFailedError"}], "", "code"),
        (Ended(6), [{"kind": "failure", "message": "CUDA out of memory", "error": "X"}], "", "out_of_memory"),
        (Ended(1), [], "Traceback\ntorch.OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        (Ended(6), [], "error: disk full: no space left to write /r/a", "storage"),
        (Ended(137), [], "", "killed"),
        (Ended(139), [], "Fatal Python error: Segmentation fault", "killed"),
        (Ended(None, "its supervisor and all its processes are gone", True), [], "", "worker_lost"),
        (Ended(None, "the Ray cluster knows nothing of the job any more", True), [], "", "node_lost"),
        (
            Ended(6),
            [{"kind": "failure", "message": "rank 1 of pool 'main' (pid 3 on a) died in x: its node is gone"}],
            "",
            "node_lost",
        ),
        (
            Ended(6),
            [
                {
                    "kind": "failure",
                    "message": "rank 1 of pool 'main' (pid 3 on a) died in x: it was killed from outside",
                }
            ],
            "",
            "killed",
        ),
    ],
)
def test_a_failure_is_told_apart_by_what_is_known_of_it(
    tmp_path: Path, ended: Ended, events: list[dict[str, object]], stderr: str, error_class: str
) -> None:
    outcome = outcome_of(ended, folder_with(tmp_path, *events, stderr=stderr))
    assert outcome.failure is not None
    assert (outcome.is_success, outcome.failure.error_class) == (False, error_class)
    assert outcome.failure.message


@pytest.mark.parametrize(("ended", "is_success"), [(Ended(0), True), (Ended(None), True), (Ended(7), False)])
def test_an_end_that_nobody_saw_is_read_from_the_run_directory(tmp_path: Path, ended: Ended, is_success: bool) -> None:
    assert outcome_of(ended, folder_with(tmp_path, SUCCEEDED)).is_success is is_success


def test_the_last_words_of_a_trainer_show_no_key(tmp_path: Path) -> None:
    key = "sk-" + "a" * 24
    outcome = outcome_of(Ended(1), folder_with(tmp_path, stderr=f"error: 401 for {key}\n"))
    assert outcome.failure is not None
    assert outcome.failure.message == "401 for <redacted>"


def test_a_growing_file_gives_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_lines(path, 0, max_bytes=100).rows == ()
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    first = read_lines(path, 0, max_bytes=1000)
    assert [row["step"] for row in first.rows] == [1, 2]
    assert (first.offset, first.rest_bytes) == (24, 4)
    with path.open("ab") as file:
        file.write(b'ep": 3}\nno json\n{"step": 4}\n')
    second = read_lines(path, first.offset, max_bytes=1000)
    assert ([row["step"] for row in second.rows], second.num_bad) == ([3, 4], 1)
    assert read_lines(path, second.offset, max_bytes=1000).rows == ()


def test_a_line_that_is_longer_than_a_look_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"message": "x" * 500}) + "\n" + json.dumps({"message": "y"}) + "\n")
    first = read_lines(path, 0, max_bytes=64)
    assert first.rows[0]["message"] == "x" * 500
    rest = read_lines(path, first.offset, max_bytes=64)
    assert [row["message"] for row in (*first.rows, *rest.rows)][1:] == ["y"]


def test_j10_a_folder_of_code_is_measured_without_what_is_no_code(tmp_path: Path) -> None:
    """A repository with its history, an environment and checkpoints: 600 files beside two that are code."""
    (tmp_path / "my_reward.py").write_text("def score(response):\n    return 1.0\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "more.py").write_text("x = 1\n")
    for name in (".git/objects", ".venv/lib", "runs/a/attempt-1", "runs/a/checkpoints/step-000001", "lib/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(120):
            (tmp_path / name / f"{number}.data").write_bytes(bytes(1000))
    (tmp_path / "model.safetensors").write_bytes(bytes(5000))
    found = WorkingDir.measure(tmp_path)
    assert found.num_files == 2
    assert str(found).endswith("(0.0 MB in 2 files)")
    assert found.runtime_env()["working_dir"] == str(tmp_path)
    assert {".git", "checkpoints", "*.safetensors"} <= set(found.runtime_env()["excludes"])


def test_j10_a_folder_that_is_too_big_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(30):
        (tmp_path / "images" / f"{number}.png").write_bytes(bytes(10_000))
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ConfigError) as error:
        WorkingDir.measure(tmp_path, max_bytes=100_000)
    assert "(0.3 MB in 31 files) is more than the 0 MB" in str(error.value)
    assert "images (0.3 MB)" in str(error.value)
    with pytest.raises(ConfigError, match="is no folder"):
        WorkingDir.measure(tmp_path / "a.py")


def test_gpus_are_chosen_by_index_or_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpus").write_text('{"GPU-a": [], "GPU-b": [17]}')
    monkeypatch.setenv(SIMULATED_VARIABLE, str(tmp_path / "gpus"))
    probe = make_probe()
    assert chosen_gpus("all", probe) == ("GPU-a", "GPU-b")
    assert chosen_gpus("1,GPU-a,1", probe) == ("GPU-b", "GPU-a")
    assert chosen_gpus("none", probe) == ()
    assert probe.holders(["GPU-a", "GPU-b"]) == {"GPU-b": (17,)}
    with pytest.raises(ConfigError, match=r"no GPU '2'; there are: 0 \(GPU-a\), 1 \(GPU-b\)"):
        chosen_gpus("2", probe)


def test_a_process_is_known_by_more_than_its_number() -> None:
    own = own_identity()
    assert own.is_alive
    assert not ProcessIdentity(own.pid, own.start_time - 1, own.boot_id).is_alive
    assert not ProcessIdentity(own.pid, own.start_time, "another boot").is_alive


def test_the_processes_of_an_attempt_are_found_wherever_they_went() -> None:
    """One child stays in the group, one leaves it for a session of its own; a third belongs to another attempt."""
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    mine, other = {**os.environ, MARK_VARIABLE: "job-1/1"}, {**os.environ, MARK_VARIABLE: "job-1/2"}
    children = [
        subprocess.Popen(sleep, env=mine, start_new_session=True),
        subprocess.Popen(sleep, env=mine),
        subprocess.Popen(sleep, env=other),
    ]
    try:
        found = {process.pid for process in members("job-1/1")}
        assert found == {children[0].pid, children[1].pid}
        assert {process.pid for process in members("job-1/2", children[0].pid)} == {children[2].pid}
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert members("job-1/1") == []
    assert identity_of(children[0].pid) is None
