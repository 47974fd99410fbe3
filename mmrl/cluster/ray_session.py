"""Ray itself: started for one run or joined, watched, and ended without a trace."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import psutil
import ray
from ray._private import ray_constants
from ray._private import worker as ray_worker
from ray._private.node import Node

from mmrl.cluster import watchdog
from mmrl.cluster.worker_log import last_lines
from mmrl.config.placement import PlacementConfig
from mmrl.errors import ConfigError, RunFailedError

LOCAL = "127.0.0.1"

_HEAD_PROCESSES = ("gcs_server", "raylet")
_LONGEST_FOLDER = 32
"""Ray's sockets lie some 70 characters below its folder, and the system allows 107 in all."""
_CHECK_EVERY_S = 1.0
_MISSED_CHECKS = 3
_SHUTDOWN_S = 15.0

_TOKEN = secrets.token_hex(32)
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray aborts a process that has lost the head for a minute; the controller notices by itself and says the cause.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    # Each process that Ray starts ahead of need takes seconds of a core; the workers are all that is needed.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
_OWN_ENVIRONMENT = {
    # Ray lets nobody in without a token. One of the run's own keeps Ray from leaving one in the home folder.
    "RAY_AUTH_TOKEN": _TOKEN,
}


@dataclass
class RaySession:
    """A connection to Ray. folder: where a Ray started here keeps its files; None for a cluster that was joined.

    roots: the processes of a Ray started here that are the controller's own children. node_id: the node that the
    controller runs on.
    """

    address: str
    node_id: str
    folder: Path | None = None
    roots: list[psutil.Process] = field(default_factory=list)
    _heads: dict[int, str] = field(default_factory=dict)
    _all: dict[int, psutil.Process] = field(default_factory=dict)
    _watchdog: subprocess.Popen[str] | None = None
    _checked_at: float = 0.0
    _missed: int = 0

    @property
    def is_own(self) -> bool:
        return self.folder is not None

    def guard(self) -> None:
        """Takes note of all processes that Ray has started so far: none of them outlives the controller.

        What a process has started cannot be found any more when it is gone itself.
        """
        for root in self.roots:
            with contextlib.suppress(psutil.Error):
                for process in (root, *root.children(recursive=True)):
                    if process.pid not in self._all:
                        self._all[process.pid] = process
                        self._tell_watchdog(f"kill {process.pid} {process.create_time()}")
                if root.name() in _HEAD_PROCESSES:
                    self._heads[root.pid] = root.name()

    def check(self, *, now: bool = False) -> None:
        """Raises RunFailedError where Ray's head is gone. Looks once a second at most, unless it must be known now."""
        if not now and time.monotonic() - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = time.monotonic()
        lost = self._lost_process() if self.is_own else self._silent_head()
        if lost is not None:
            raise RunFailedError(f"{lost}; the workers have been ended")

    def _lost_process(self) -> str | None:
        for pid, name in self._heads.items():
            if not watchdog.is_running(pid):
                return f"Ray's head has stopped: its process {name} (pid {pid}) is gone{self._last_words(name)}"
        return None

    def _silent_head(self) -> str | None:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            self._missed = 0
        except OSError as error:
            self._missed += 1
            if self._missed >= _MISSED_CHECKS:
                return f"the head of the Ray cluster at {self.address} does not answer any more ({error})"
        return None

    def _last_words(self, name: str) -> str:
        assert self.folder is not None
        files = sorted((self.folder / "session_latest" / "logs").glob(f"{name}.err"))
        lines = [line for file in files for line in last_lines(file, 5)]
        return "".join([", having written:", *(f"\n    {line}" for line in lines)]) if lines else ""

    def close(self) -> None:
        """Ends a Ray that was started here, or leaves the cluster. Again does nothing."""
        if self._watchdog is None and self.is_own:
            return
        processes = list(self._all.values())
        if self.is_own and not all(watchdog.is_running(pid) for pid in self._heads):
            _kill(processes)  # Ray's own shutdown asks the head, and would wait for it
        _shut_down()
        _kill(processes)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._tell_watchdog("done")
        if self._watchdog is not None:
            self._watchdog.communicate()
            self._watchdog = None

    def _tell_watchdog(self, line: str) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(OSError):
                self._watchdog.stdin.write(f"{line}\n")
                self._watchdog.stdin.flush()


def open_session(placement: PlacementConfig, *, num_cpus: int) -> RaySession:
    """Starts a Ray of `num_cpus` for this run, or joins the cluster at `placement.address`.

    Raises ConfigError where there is no such cluster, RunFailedError where Ray does not start.
    """
    if ray.is_initialized():
        raise ConfigError(
            "this process is connected to Ray already, which a run would have to share and end; call ray.shutdown() "
            "before, and set placement.address to the cluster to be used"
        )
    with _signals_kept(), _no_messages():
        if placement.address is not None:
            with _environment(_ENVIRONMENT):
                return _join(placement.address)
        with _environment(_ENVIRONMENT | _OWN_ENVIRONMENT), _loopback_only(), _needed_processes_only():
            return _start(placement, num_cpus)


def _start(placement: PlacementConfig, num_cpus: int) -> RaySession:
    folder = Path(tempfile.mkdtemp(prefix="mmrl-ray-", dir=_short_temporary_folder()))
    guard = _start_watchdog()
    session = RaySession("", "", folder, _watchdog=guard)
    session._tell_watchdog(f"remove {folder}")
    before = {child.pid for child in psutil.Process().children()}  # the watchdog among them
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=None if placement.object_store_mb is None else placement.object_store_mb << 20,
            _node_ip_address=LOCAL,
            _temp_dir=str(folder),
        )
    except Exception as error:
        session.roots = _new_children(before)
        session.guard()
        session.close()
        raise RunFailedError(f"Ray did not start on this machine: {error}") from error
    session.roots = _new_children(before)
    session.guard()
    session.address, session.node_id = _whereabouts()
    return session


def _join(address: str) -> RaySession:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace=None)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"placement.address: there is no Ray cluster to join at {address!r}: {error}; start one with `ray start "
            "--head`, give HOST:PORT of its head, or leave the address out to have a Ray for this run alone"
        ) from error
    return RaySession(*_whereabouts())


def _whereabouts() -> tuple[str, str]:
    """Address of the head and id of this node."""
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_node_id()


def _new_children(before: set[int]) -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.pid not in before]


def _start_watchdog() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", watchdog.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd="/",
    )


def _short_temporary_folder() -> str:
    """Raises ConfigError where sockets cannot lie among the temporary files."""
    for folder in (tempfile.gettempdir(), "/tmp"):
        if len(folder) <= _LONGEST_FOLDER - len("/mmrl-ray-12345678") and os.access(folder, os.W_OK):
            return folder
    raise ConfigError(
        f"Ray needs a folder with a short name for its sockets, and neither {tempfile.gettempdir()} nor /tmp will do; "
        "set TMPDIR to one of at most 14 characters"
    )


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """What Ray reads from the environment while it starts; what the user has set stays."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Ray puts a machine's outward address in the place of 127.0.0.1, and then listens to all, unless it takes itself
    to be on a system without clusters."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _needed_processes_only() -> Iterator[None]:
    """Without what Ray starts for growing clusters, for browsers and for printing logs: it would take four seconds of a
    core at the start and two at the end."""
    with contextlib.ExitStack() as stack:
        for name in ("start_monitor", "start_log_monitor", "start_api_server"):
            stack.enter_context(patch.object(Node, name, _do_nothing))
        yield


@contextlib.contextmanager
def _no_messages() -> Iterator[None]:
    """Ray prints to stdout that a worker died, which belongs to the data of commands; the run says it, with more."""
    with patch.object(ray_worker, "listen_error_messages", _do_nothing):
        yield


def _do_nothing(*_: object, **__: object) -> None: ...


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts a handler of its own on SIGTERM; the run has a better one."""
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, handler)


def _shut_down() -> None:
    """Ray's own shutdown, which is not waited for where it hangs."""
    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(_SHUTDOWN_S)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_SHUTDOWN_S)
