"""Worker classes for the tests of the cluster, importable in worker processes."""

from __future__ import annotations

import logging
import mmap
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from mmrl.cluster import WorkerContext, dispatch
from mmrl.errors import DataError
from mmrl.shared_memory import FOLDER, prefix_of


class OddRowError(DataError):
    """With a constructor that pickle cannot call."""

    def __init__(self, *, row: int) -> None:
        super().__init__(f"row {row} is odd")
        self.row = row


@dataclass(frozen=True)
class Facts:
    """What a worker process says of itself."""

    context: WorkerContext
    pid: int
    environment: dict[str, str]
    modules: frozenset[str]
    folder: str


class Worker:
    """A bit of everything that a group can be asked."""

    def __init__(self, context: WorkerContext, start: int = 0, *, step: int = 1) -> None:
        self.context = context
        self.value = start
        self.step = step

    @dispatch("broadcast")
    def add(self, times: int = 1) -> int:
        self.value += times * self.step
        return self.value

    @dispatch("broadcast_rank_zero")
    def rank(self) -> int:
        return self.context.rank

    @dispatch("rank_zero")
    def greet(self, name: str) -> str:
        return f"hello {name}, from {self.context.rank}"

    @dispatch("shard")
    def square(self, rows: list[int]) -> list[int]:
        return [row * row for row in rows]

    @dispatch("shard")
    def refuse_odd(self, rows: list[int]) -> list[int]:
        for row in rows:
            if row % 2:
                raise OddRowError(row=row)
        return rows

    @dispatch("broadcast")
    def refuse(self) -> None:
        raise OddRowError(row=self.context.rank)

    @dispatch("broadcast")
    def facts(self) -> Facts:
        return Facts(self.context, os.getpid(), dict(os.environ), frozenset(sys.modules), os.getcwd())

    @dispatch("broadcast")
    def sleep(self, seconds: float) -> tuple[float, float]:
        """When it began and ended, by a clock that all processes of the machine share."""
        start = time.monotonic()
        time.sleep(seconds)
        return start, time.monotonic()

    @dispatch("broadcast")
    def look_at(self, array: Any) -> tuple[float, bool, int]:
        """Sum, whether it can be written to, and this process's own memory in bytes."""
        return float(array.sum()), bool(array.flags.writeable), _own_memory()

    @dispatch("broadcast")
    def change(self, array: Any) -> float:
        array += 1
        return float(array.sum())

    @dispatch("broadcast")
    def total(self, tensor: Any) -> float:
        return float(tensor.sum())

    @dispatch("broadcast")
    def num_threads(self) -> int:
        import torch

        return int(torch.get_num_threads())

    @dispatch("broadcast")
    def all_reduce(self) -> float:
        """The sum of 1, 2, … over the workers of the pool, by a collective of theirs."""
        import torch
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        numbers = torch.tensor(float(self.context.rank + 1))
        torch.distributed.all_reduce(numbers)
        torch.distributed.destroy_process_group()
        return float(numbers)

    @dispatch("broadcast")
    def say(self, text: str) -> None:
        print(text, flush=True)
        os.write(2, f"{text} from below\n".encode())
        logging.getLogger("mmrl.test").warning("%s, logged", text)

    def unmarked(self) -> None: ...


class Faulty:
    """Goes wrong on one rank, while the others wait for it as in a collective."""

    def __init__(self, context: WorkerContext) -> None:
        self.context = context

    @dispatch("broadcast")
    def refuse(self, breaking_rank: int | None = None) -> None:
        """On purpose, but for one rank that breaks, a moment before."""
        if self.context.rank == breaking_rank:
            raise KeyError("weights of layer 3")
        time.sleep(0 if breaking_rank is None else 0.2)
        raise OddRowError(row=self.context.rank)

    @dispatch("broadcast")
    def spawn(self) -> int:
        """A child process that a worker has started."""
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]).pid

    @dispatch("broadcast")
    def raise_on(self, rank: int, seconds: float = 300) -> None:
        if self.context.rank == rank:
            raise KeyError("weights of layer 3")
        time.sleep(seconds)

    @dispatch("broadcast")
    def die_on(self, rank: int) -> None:
        if self.context.rank == rank:
            print("about to go", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(300)

    @dispatch("broadcast")
    def crash_on(self, rank: int) -> None:
        if self.context.rank == rank:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(300)

    @dispatch("broadcast")
    def hang_on(self, rank: int) -> None:
        if self.context.rank == rank:
            self.wait_for_what_never_comes()

    def wait_for_what_never_comes(self) -> None:
        threading.Event().wait(300)

    @dispatch("broadcast")
    def hang_in_compiled_code(self) -> None:
        """Holds the interpreter, so that no other Python thread of the process runs."""
        import ctypes

        ctypes.PyDLL(None).sleep(300)

    @dispatch("broadcast")
    def pid(self) -> int:
        return os.getpid()


class Mailbox:
    """Takes what workers of another pool send, while it waits for that."""

    def __init__(self, context: WorkerContext) -> None:
        self.arrived: queue.Queue[Any] = queue.Queue()

    @dispatch("rank_zero")
    def receive(self, count: int) -> list[float]:
        return [float(self.arrived.get(timeout=60).sum()) for _ in range(count)]

    @dispatch("rank_zero", concurrent=True)
    def deliver(self, chunk: Any) -> bool:
        self.arrived.put(chunk)
        return bool(getattr(chunk, "flags", None) is None or chunk.flags.writeable)


class Sender:
    def __init__(self, context: WorkerContext) -> None:
        self.context = context

    @dispatch("broadcast")
    def send(self, mailbox: Any, chunks: list[int]) -> list[bool]:
        """Rank 0 sends an array of each length. Whether the receiver could write to them."""
        import numpy as np

        if self.context.rank > 0:
            return []
        return [mailbox.call("deliver", mailbox.put(np.ones(length, dtype=np.float32))) for length in chunks]


class SharingMemory:
    """Maps shared memory as ranks of vLLM do on a CPU, and does not remove it."""

    def __init__(self, context: WorkerContext) -> None:
        path = FOLDER / f"{prefix_of(os.environ['MASTER_PORT'])}test_{context.rank}"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 4096)
        self.name = path.name

    @dispatch("broadcast")
    def names(self) -> str:
        return self.name


class Closing:
    def __init__(self, context: WorkerContext, path: str) -> None:
        self.path = path

    @dispatch("rank_zero")
    def nothing(self) -> None: ...

    def close(self) -> None:
        with open(self.path, "a") as file:
            file.write("closed\n")


def _own_memory() -> int:
    """Bytes of memory that this process shares with no other."""
    import psutil

    memory = psutil.Process().memory_full_info()
    return int(memory.uss)
