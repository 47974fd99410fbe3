"""What a worker process holds: the workers of all groups of its pool, and the calls that run on them."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmrl.cluster.base import WorkerContext
from mmrl.cluster.failures import Failure, capture
from mmrl.cluster.packing import Packed, pack, unpack
from mmrl.cluster.worker_log import log_path, send_output_to, thread_stacks

logger = logging.getLogger("mmrl.calls")


@dataclass(frozen=True)
class Setup:
    """What the controller tells a worker process before anything else, and before it imports torch.

    environment: set as environment variables. sys_path, folder: those of the controller.
    """

    context: WorkerContext
    environment: dict[str, str]
    sys_path: tuple[str, ...]
    folder: str
    log_dir: str
    log_level: int = logging.WARNING


@dataclass(frozen=True)
class Layout:
    """How the items that a call brings make up its arguments: so many positional ones, then these keywords."""

    num_args: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stacks:
    """busy: the Python stack of each thread that runs a call, with the call. others: those of all other threads."""

    busy: tuple[str, ...]
    others: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*(self.busy or ("no call is running",)), *self.others])


@dataclass
class WorkerHost:
    """running: the call that each thread runs, by its identity."""

    setup: Setup | None = None
    workers: dict[str, Any] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)

    def prepare(self, setup: Setup) -> None:
        self.setup = setup
        os.environ.update(setup.environment)
        sys.path.extend(folder for folder in setup.sys_path if folder not in sys.path)
        with suppress(OSError):
            os.chdir(setup.folder)
        send_output_to(log_path(Path(setup.log_dir), self.context.pool, self.context.rank), level=setup.log_level)
        # Tensors that are read in place lie in memory that nobody may write to, which is as it should be.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

    @property
    def context(self) -> WorkerContext:
        assert self.setup is not None, "a worker process is prepared before it is used"
        return self.setup.context

    def build(self, group: str, layout: Layout, items: Sequence[Any]) -> Packed | Failure:
        """Constructs this process's worker of a group. The first item is its class."""

        def construct() -> None:
            (worker_class, *args), kwargs = _arguments(layout, items)
            self.workers[group] = worker_class(self.context, *args, **kwargs)

        return self._run(group, "__init__", construct)

    def call(self, group: str, method: str, layout: Layout, items: Sequence[Any]) -> Packed | Failure:
        """Runs a method of the worker of a group."""

        def run() -> Any:
            args, kwargs = _arguments(layout, items)
            return getattr(self.workers[group], method)(*args, **kwargs)

        return self._run(group, method, run)

    def close(self) -> None:
        """Lets the workers that have a method `close` end what they hold, the newest first."""
        for group in reversed(list(self.workers)):
            worker = self.workers.pop(group)
            close = getattr(worker, "close", None)
            if callable(close):
                try:
                    close()
                except Exception:
                    logger.exception("%s.close failed", group)

    def stacks(self) -> Stacks:
        """What the threads of this process do, but for the one that asks."""
        here, busy, others = threading.get_ident(), [], []
        for ident, text in thread_stacks().items():
            work = self.running.get(ident)
            if work is not None:
                busy.append(f"in {work}:\n{text}")
            elif ident != here:
                others.append(text)
        return Stacks(tuple(busy), tuple(others))

    def _run(self, group: str, method: str, work: Callable[[], Any]) -> Packed | Failure:
        ident, start = threading.get_ident(), time.perf_counter()
        self.running[ident] = f"{group}.{method}"
        try:
            return pack(work())
        except BaseException as error:
            return capture(error, self.context, group=group, method=method)
        finally:
            del self.running[ident]
            seconds = time.perf_counter() - start
            logger.debug("rank %d: %s.%s took %.3f s", self.context.rank, group, method, seconds)


def free_port(address: str) -> int:
    """A port of this machine that nobody listens at just now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _arguments(layout: Layout, items: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    values = [unpack(item) if isinstance(item, Packed) else item for item in items]
    return values[: layout.num_args], dict(zip(layout.names, values[layout.num_args :], strict=True))
