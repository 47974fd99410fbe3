"""Commands as processes: real ones, of mmrl itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from console.services.processes import Processes, Task

NOOP = "{name: slow, kind: noop, noop: {steps: 1000, step_s: 0.2}}"


def waited(processes: Processes, key: str, *, timeout_s: float = 60.0) -> Task:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        task = processes.get(key)
        if task is not None and task.is_over:
            return task
        time.sleep(0.05)
    raise AssertionError(f"{key} is not over after {timeout_s} s: {processes.get(key)}")


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "processes")


def sleeper(tmp_path: Path) -> list[str]:
    """A command that takes minutes."""
    config = tmp_path / "noop.yaml"
    config.write_text(NOOP)
    return ["train", str(config), "--run-dir", str(tmp_path / f"run-{time.monotonic_ns()}")]


def running(processes: Processes, key: str) -> psutil.Process:
    """The process of a key, once it is there."""
    words = {"train"}
    for _ in range(400):
        for child in psutil.Process().children(recursive=True):
            try:
                if words & set(child.cmdline()):
                    return child
            except psutil.Error:
                continue
        time.sleep(0.05)
    raise AssertionError(processes.get(key))


def test_json_that_a_command_prints_comes_back_as_data(processes: Processes) -> None:
    task = processes.run("rewards", ["reward", "list", "--json"], deadline_s=60)
    assert (task.state, task.exit_code, task.error) == ("done", 0, None)
    assert "exact" in {reward["type"] for reward in task.data["rewards"]}


def test_the_error_of_a_command_comes_back_in_its_own_words(processes: Processes, tmp_path: Path) -> None:
    task = processes.run("check", ["config", "show", str(tmp_path / "nowhere.yaml")], deadline_s=60)
    assert (task.state, task.exit_code, task.data) == ("failed", 3, None)
    assert task.error is not None
    assert task.error.startswith("config file")
    assert "does not exist" in task.error


def test_words_reach_the_command_as_they_are_and_no_shell_reads_them(processes: Processes, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    task = processes.run("check", ["config", "show", f"$(touch {marker}); touch {marker}"], deadline_s=60)
    assert task.state == "failed"
    assert not marker.exists()


def test_what_came_of_a_command_outlives_the_console(processes: Processes, tmp_path: Path) -> None:
    processes.run("rewards", ["reward", "list", "--json"], deadline_s=60)
    again = Processes(tmp_path / "processes").get("rewards")
    assert again is not None
    assert again.state == "done"
    assert again.data["rewards"]


def test_a_command_past_its_deadline_is_ended_and_says_so(processes: Processes, tmp_path: Path) -> None:
    task = processes.run("slow", sleeper(tmp_path), deadline_s=1.0)
    assert task.state == "failed"
    assert task.error is not None
    assert task.error.startswith("this took more than 1 seconds")
    assert not [child for child in psutil.Process().children(recursive=True) if "train" in child.cmdline()]


def test_another_start_ends_the_earlier_one_and_the_same_one_joins_it(processes: Processes, tmp_path: Path) -> None:
    processes.start("slow", sleeper(tmp_path), deadline_s=60, stamp="a")
    first = running(processes, "slow")
    joined = processes.start("slow", sleeper(tmp_path), deadline_s=60, stamp="a")
    assert joined.stamp == "a"
    assert first.is_running()
    processes.start("slow", ["reward", "list", "--json"], deadline_s=60, stamp="b")
    task = waited(processes, "slow")
    assert (task.stamp, task.state) == ("b", "done")
    gone, alive = psutil.wait_procs([first], timeout=10)
    assert gone == [first], alive


def test_a_command_that_was_killed_says_that_it_was_interrupted(processes: Processes, tmp_path: Path) -> None:
    processes.start("slow", sleeper(tmp_path), deadline_s=60)
    running(processes, "slow").kill()
    task = waited(processes, "slow")
    assert task.state == "failed"


def test_a_task_whose_console_died_before_it_began_counts_as_interrupted(tmp_path: Path) -> None:
    full = Processes(tmp_path / "processes", at_once=1)
    full.start("first", sleeper(tmp_path), deadline_s=60)
    running(full, "first")
    assert full.start("second", ["reward", "list", "--json"], deadline_s=60).state == "waiting"
    other = Processes(tmp_path / "processes").get("second")
    assert other is not None
    assert (other.state, other.error) == ("failed", "this was interrupted before it was done; start it again")
    full.stop("first")
    assert waited(full, "second").state == "done"


def test_commands_know_neither_the_database_nor_secrets_of_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    from console.services.processes import _environment

    monkeypatch.setenv("MMRL_DATABASE_URL", "postgresql://user:secret@host/db")
    monkeypatch.setenv("MMRL_CONSOLE_COOKIE", "secret")
    environment = _environment()
    assert not {"MMRL_DATABASE_URL", "MMRL_CONSOLE_COOKIE"} & environment.keys()
    assert environment["PATH"] == os.environ["PATH"]
