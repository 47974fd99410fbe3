"""Values and errors on their way between processes, and what a worker process does with a call."""

from __future__ import annotations

import mmap
import pickle
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from mmrl import shared_memory
from mmrl.cluster import watchdog
from mmrl.cluster.base import WorkerContext
from mmrl.cluster.failures import Failure, capture, error_of
from mmrl.cluster.host import Layout, WorkerHost, free_port
from mmrl.cluster.packing import Packed, pack, unpack
from mmrl.cluster.worker_log import last_lines
from mmrl.errors import DataError, RunFailedError

CONTEXT = WorkerContext("main", rank=1, num_workers=2)


class AwkwardError(DataError):
    """Cannot be made from its arguments alone, and holds something that cannot be pickled."""

    def __init__(self, *, row: int) -> None:
        super().__init__(f"row {row} is broken")
        self.row = row
        self.handle = (number for number in range(3))


def captured(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as raised:
        return pickle.loads(pickle.dumps(capture(raised, CONTEXT, group="actor", method="train_step")))


def test_an_error_of_mmrl_keeps_its_class_and_attributes_and_names_the_worker():
    error = error_of(captured(AwkwardError(row=7)))

    assert type(error) is AwkwardError
    assert error.row == 7
    assert str(error) == "row 7 is broken (actor.train_step on rank 1 of pool 'main')"
    assert "AwkwardError" in str(error.__cause__)


def test_not_finite_error_keeps_its_batch():
    torch = pytest.importorskip("torch")
    from mmrl.engines.finite import NotFiniteError

    batch: Any = torch.ones(2)

    error = error_of(captured(NotFiniteError("loss is nan", batch=batch, learner="critic", update=3)))

    assert isinstance(error, NotFiniteError)
    assert (error.learner, error.update) == ("critic", 3)
    assert error.batch.tolist() == [1.0, 1.0]  # type: ignore[union-attr]


def test_any_other_error_fails_the_run_with_rank_and_traceback():
    error = error_of(captured(KeyError("weights")))

    assert type(error) is RunFailedError
    assert str(error).startswith(
        "actor.train_step on rank 1 of pool 'main' raised KeyError: 'weights'\n\n    Traceback"
    )
    assert "in captured" in str(error)


def test_an_error_whose_text_cannot_be_read_is_still_told():
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert "raised Mute: its message cannot be read" in str(error_of(captured(Mute())))


def test_arrays_are_copied_for_a_receiver_that_may_write_and_read_in_place_where_they_were_put():
    value = {"numbers": np.arange(6.0).reshape(2, 3), "text": "a"}

    written = unpack(pack(value))
    written["numbers"][0, 0] = 5.0
    packed = pack(value, in_place=True)
    read = unpack(packed)

    assert value["numbers"][0, 0] == 0.0
    assert np.shares_memory(read["numbers"], packed.buffers[0])
    assert not np.shares_memory(written["numbers"], value["numbers"])


def test_tensors_travel_as_bytes_beside_the_pickle_and_arrive_as_they_were():
    torch = pytest.importorskip("torch")
    base = torch.arange(12, dtype=torch.float32)
    value: dict[str, Any] = {
        "bfloat16": torch.randn(3, 4).to(torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.empty(0, 3),
        "strided": base.reshape(3, 4).T,
        "part": base[3:5],
        "leaf": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }

    packed = pack(value)
    arrived = unpack(packed)

    for name, tensor in value.items():
        assert torch.equal(arrived[name], tensor), name
        assert arrived[name].dtype is tensor.dtype
        assert arrived[name].requires_grad is tensor.requires_grad
    assert type(arrived["parameter"]) is torch.nn.Parameter
    assert sum(buffer.nbytes for buffer in packed.buffers) == 24 + 2 + 8 + 48 + 8 + 8 + 8
    arrived["part"].add_(1)
    assert base[3:5].tolist() == [3.0, 4.0]


def test_what_cannot_be_sent_is_named():
    with pytest.raises(TypeError, match="a generator cannot be sent to a worker"):
        pack(number for number in range(3))


class Counter:
    def __init__(self, context: WorkerContext, start: int, *, step: int = 1) -> None:
        self.rank, self.value, self.step = context.rank, start, step

    def add(self, times: int = 1) -> int:
        self.value += times * self.step
        return self.value

    def leave(self) -> None:
        raise SystemExit(3)


class _Setup:
    context = CONTEXT


def host() -> WorkerHost:
    return WorkerHost(setup=_Setup())  # type: ignore[arg-type]


def test_a_host_keeps_the_workers_of_several_groups_apart():
    process = host()
    for group, start in (("a", 0), ("b", 100)):
        process.build(group, Layout(2, ("step",)), [pack(Counter), pack(start), pack(10)])

    results = [process.call(group, "add", Layout(0, ("times",)), [pack(2)]) for group in ("a", "b", "a")]

    assert [unpack(result) for result in results if isinstance(result, Packed)] == [20, 120, 40]


def test_a_worker_that_calls_exit_has_failed_and_its_process_goes_on():
    process = host()
    process.build("a", Layout(2), [pack(Counter), pack(0)])

    outcome = process.call("a", "leave", Layout(0), [])

    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.message) == ("SystemExit", "3")
    assert isinstance(process.call("a", "add", Layout(0), []), Packed)


def test_a_class_that_cannot_be_constructed_fails_with_its_group():
    outcome = host().build("a", Layout(1), [pack(Counter)])
    assert isinstance(outcome, Failure)
    assert "missing 1 required positional argument: 'start'" in outcome.message
    assert outcome.where == "a.__init__ on rank 1 of pool 'main'"


def test_the_last_lines_of_a_log_are_its_last_ones_without_empty_lines(tmp_path: Path):
    log = tmp_path / "worker.log"
    log.write_text("\n\n".join(f"line {number}" for number in range(5000)))
    assert last_lines(log, 2) == ["line 4998", "line 4999"]
    assert last_lines(tmp_path / "none.log") == []


def test_free_ports_can_be_listened_at():
    assert 0 < free_port("127.0.0.1") < 65536


CONTROLLER = """
import subprocess, sys, time
guard = subprocess.Popen([sys.executable, "-I", sys.argv[1]], stdin=subprocess.PIPE, start_new_session=True)
guard.stdin.write(sys.argv[2].encode())
guard.stdin.flush()
print("ready", flush=True)
time.sleep(60)
"""


def test_the_watchdog_ends_processes_and_folders_when_its_controller_is_killed(tmp_path: Path):
    folder = tmp_path / "session"
    folder.mkdir()
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    created = [psutil.Process(sleeper.pid).create_time() for sleeper in sleepers]
    port = f"test{secrets.token_hex(4)}"
    used, left = (shared_memory.FOLDER / f"{shared_memory.prefix_of(port)}cpushm_{rank}" for rank in range(2))
    for path in (used, left):
        path.write_bytes(bytes(4096))
    with used.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 4096)
    lines = f"share {port}\nremove {folder}\n"
    lines += f"kill {sleepers[0].pid} {created[0]}\nkill {sleepers[1].pid} {created[1] - 60}\n"
    command = [sys.executable, "-c", CONTROLLER, watchdog.__file__, lines]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"ready\n"
        controller.kill()

    deadline = time.monotonic() + 20
    while (folder.exists() or left.exists()) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not folder.exists()
    assert (left.exists(), used.exists()) == (False, True), "what a process has mapped is another run's by now"
    memory.close()
    used.unlink()
    assert sleepers[0].wait(1) == -signal.SIGKILL
    assert sleepers[1].poll() is None, "a process that is younger than the one meant is left alone"
    sleepers[1].kill()
    sleepers[1].wait()


def test_a_watchdog_that_is_told_done_leaves_everything(tmp_path: Path):
    subprocess.run([sys.executable, "-I", watchdog.__file__], input=f"remove {tmp_path}\ndone\n", text=True, check=True)
    assert tmp_path.exists()
