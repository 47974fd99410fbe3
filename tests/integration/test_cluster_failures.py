"""Workers that fail, die or hang, a Ray that stops, a controller that is killed: each ends soon, with its cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from cluster_processes import RayProcesses
from cluster_workers import Faulty, OddRowError, SharingMemory

from mmrl.cluster import Executor, WorkerGroup, build_executor
from mmrl.config.placement import PlacementConfig, PoolConfig
from mmrl.errors import RunFailedError
from mmrl.shared_memory import FOLDER

pytestmark = pytest.mark.ray

PLACEMENT = PlacementConfig(executor="ray", pools={"main": PoolConfig(workers=2)}, object_store_mb=80, deadline_s=120)


class Watched:
    """An executor with a group of faulty workers, and all processes that belong to it."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.executor: Executor = build_executor(PLACEMENT, log_dir=log_dir)
        self.group: WorkerGroup = self.executor.create("faulty", Faulty)
        self.spawned: list[int] = self.group.spawn()
        self.memory: list[str] = self.executor.create("memory", SharingMemory).names()
        self.pids: list[int] = self.group.pid()
        self.processes = RayProcesses.of_this_process()
        assert {*self.pids, *self.spawned} <= set(self.processes.pids)

    def fails(self, call: Callable[[WorkerGroup], Any], *, within_s: float) -> str:
        """The message of the failure, after which nothing is left and nothing can be called."""
        start = time.monotonic()
        with pytest.raises(RunFailedError) as raised:
            call(self.group)
        seconds = time.monotonic() - start
        assert seconds < within_s, f"it took {seconds:.1f} s"
        self.processes.check_gone()
        assert left_of(self.memory) == []
        with pytest.raises(RunFailedError, match="the workers have been ended, since"):
            self.group.pid()
        self.executor.close()
        return str(raised.value)


def left_of(names: Iterable[str]) -> list[str]:
    """Of the shared memory of a pool."""
    return [name for name in names if (FOLDER / name).exists()]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_the_first_error_of_a_worker_ends_the_run_while_its_siblings_wait(watched: Watched):
    message = watched.fails(lambda group: group.raise_on(1), within_s=30)

    assert message.startswith("faulty.raise_on on rank 1 of pool 'main' raised KeyError: 'weights of layer 3'")
    assert 'raise KeyError("weights of layer 3")' in message


def test_of_answers_that_come_together_each_trouble_counts(watched: Watched):
    """Two calls that workers refuse both fail, and leave the workers alone; not so where one of them breaks."""
    calls = [answered(watched.group.start("refuse")) for _ in range(2)]
    for call in calls:
        with pytest.raises(OddRowError):
            call.result()
    assert watched.group.pid() == watched.pids

    message = watched.fails(lambda group: answered(group.start("refuse", breaking_rank=1)).result(), within_s=30)
    assert message.startswith("faulty.refuse on rank 1 of pool 'main' raised KeyError: 'weights of layer 3'")


def answered(call: Any) -> Any:
    """The call once all workers have answered, before anybody has looked."""
    refs = list(call.waiting.values())
    assert len(ray.wait(refs, num_returns=len(refs), timeout=60)[0]) == len(refs)
    return call


def test_j08_a_killed_worker_is_named_with_its_last_words_and_its_siblings_are_released(
    watched: Watched, capfd: pytest.CaptureFixture[str]
):
    message = watched.fails(lambda group: group.die_on(1), within_s=30)

    assert message.startswith(f"rank 1 of pool 'main' (pid {watched.pids[1]} on 127.0.0.1) died in faulty.die_on: ")
    assert "killed from outside (SIGKILL" in message
    assert message.endswith("    about to go")
    assert str(watched.log_dir / "worker-main-1.log") in message
    assert capfd.readouterr().out == "", "stdout is for data"


def test_a_worker_that_crashes_in_compiled_code_is_told_by_its_signal(watched: Watched):
    message = watched.fails(lambda group: group.crash_on(0), within_s=30)

    assert "rank 0 of pool 'main'" in message
    assert "it crashed with Segmentation fault" in message


def test_a_hang_ends_at_the_deadline_with_what_each_worker_was_doing(watched: Watched):
    message = watched.fails(lambda group: group.hang_on(1, deadline_s=2), within_s=30)

    assert message.startswith("faulty.hang_on did not end within its deadline of 2 s on rank 1 of pool 'main'")
    assert "in wait_for_what_never_comes" in message
    assert "rank 0" not in message
    file = watched.log_dir / "hang-faulty-hang_on.txt"
    assert str(file) in message
    assert "in wait_for_what_never_comes" in file.read_text()


def test_a_hang_that_holds_the_interpreter_is_seen_from_outside(watched: Watched):
    message = watched.fails(lambda group: group.hang_in_compiled_code(deadline_s=2), within_s=40)

    assert "on ranks 0, 1 of pool 'main'" in message
    assert message.count("held by compiled code") == 2
    assert "in hang_in_compiled_code" in message


def test_a_stopped_head_of_ray_ends_the_run_with_that_cause(watched: Watched):
    pending = watched.group.start("raise_on", -1)
    (gcs,) = [process for process in psutil.Process().children() if process.name() == "gcs_server"]
    gcs.kill()

    message = watched.fails(lambda group: pending.result(), within_s=60)

    assert message.startswith(f"Ray's head has stopped: its process gcs_server (pid {gcs.pid}) is gone")


def test_a_stopped_raylet_ends_the_run_with_that_cause(watched: Watched):
    pending = watched.group.start("raise_on", -1)
    (raylet,) = [process for process in psutil.Process().children() if process.name() == "raylet"]
    raylet.kill()

    message = watched.fails(lambda group: pending.result(), within_s=60)

    assert f"raylet (pid {raylet.pid}) is gone" in message


CONTROLLER = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from test_cluster_failures import Watched

watched = Watched(Path(sys.argv[1]))
print(watched.processes.folder, *watched.processes.pids, *watched.memory, flush=True)
watched.group.raise_on(-1)
"""


def started(line: str) -> tuple[RayProcesses, list[str]]:
    folder, *words = line.split()
    pids = [int(word) for word in words if word.isdecimal()]
    assert len(pids) > 6
    return RayProcesses(tuple(pids), Path(folder)), words[len(pids) :]


def test_a_controller_that_is_killed_leaves_no_process_and_no_folder(tmp_path: Path):
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        processes, memory = started(controller.stdout.readline())
        assert left_of(memory) == memory != []
        os.kill(controller.pid, signal.SIGKILL)

    deadline = time.monotonic() + 30
    while (processes.folder.exists() or left_of(memory)) and time.monotonic() < deadline:
        time.sleep(0.1)
    processes.check_gone()
    assert left_of(memory) == []


def test_a_controller_that_ends_without_closing_leaves_nothing_either(tmp_path: Path):
    script = CONTROLLER.replace("watched.group.raise_on(-1)", "")
    command = [sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    processes, memory = started(done.stdout)

    deadline = time.monotonic() + 30
    while (processes.folder.exists() or left_of(memory)) and time.monotonic() < deadline:
        time.sleep(0.1)
    processes.check_gone()
    assert left_of(memory) == []


def test_a_ray_that_was_too_slow_to_start_is_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Its half a minute passes on a machine that is busy with other things; the fault is put in by hand."""
    init, tries = ray.init, []

    def slow_once(**arguments: Any) -> Any:
        tries.append(Path(arguments["_temp_dir"]))
        if len(tries) == 1:
            raise RuntimeError("The current node timed out during startup")
        return init(**arguments)

    monkeypatch.setattr(ray, "init", slow_once)
    executor = build_executor(PLACEMENT, log_dir=tmp_path)
    try:
        processes = RayProcesses.of_this_process()
        assert [folder.exists() for folder in tries] == [False, True]
        assert "timed out during startup; it is tried once more" in caplog.text
    finally:
        executor.close()
    processes.check_gone()


def test_a_ray_that_does_not_start_twice_is_an_error_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(**_: Any) -> None:
        raise RuntimeError("The current node timed out during startup")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(RunFailedError, match=r"Ray did not start on this machine: .*timed out during startup"):
        build_executor(PLACEMENT, log_dir=tmp_path)
