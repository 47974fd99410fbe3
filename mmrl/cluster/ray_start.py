"""Starting a Ray for one run, or joining a running cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import psutil
import ray
from ray._private import ray_constants, services
from ray._private import worker as ray_worker
from ray._private.node import Node

from mmrl.cluster import watchdog
from mmrl.cluster.ray_session import LOCAL, RaySession, connect
from mmrl.config.placement import PlacementConfig
from mmrl.errors import ConfigError, RunFailedError

_log = logging.getLogger(__name__)

_LONGEST_FOLDER = 32
"""Ray's sockets lie some 70 characters below its folder, and the system allows 107 in all."""
_TOKEN = secrets.token_hex(32)
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray aborts a process that has lost the head for a minute; the controller notices by itself and says the cause.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    # Each process that Ray starts ahead of need takes seconds of a core; the workers are all that is needed.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
_SET_BY_RAY = "RAY_AUTH_MODE"
_OWN_ENVIRONMENT = {
    # Ray lets nobody in without a token. One of the run's own keeps Ray from leaving one in the home folder.
    "RAY_AUTH_TOKEN": _TOKEN,
}


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
    """Tries again once: Ray gives its processes half a minute, which is too short on a machine that is busy just then,
    and two of them that start at once may choose the same port."""
    try:
        return _start_once(placement, num_cpus)
    except RunFailedError as error:
        _log.warning("%s; it is tried once more", error)
        return _start_once(placement, num_cpus)


def _start_once(placement: PlacementConfig, num_cpus: int) -> RaySession:
    folder = Path(tempfile.mkdtemp(prefix="mmrl-ray-", dir=_short_temporary_folder()))
    guard = _start_watchdog()
    session = RaySession("", "", folder, _watchdog=guard)
    session.tell_watchdog(f"remove {folder}")
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
        found = services.canonicalize_bootstrap_address(address)
        if found is None:
            raise ConnectionError("none is known on this machine")
        connect(found)  # Ray itself would try for minutes
        ray.init(address=found, log_to_driver=False, logging_level=logging.ERROR, namespace=None)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
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
    before = set(os.environ)
    os.environ.update({name: value for name, value in values.items() if name not in before})
    try:
        yield
    finally:
        for name in (*values, _SET_BY_RAY):
            if name not in before:
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
