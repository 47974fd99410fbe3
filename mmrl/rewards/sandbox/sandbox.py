"""Running programs that nobody trusts: what a policy wrote, and renderers that read what it wrote.

Each run has processes, a file system and a network of its own (Linux namespaces, set up by `init.py`), a clean
environment, and limits on time, memory, processes, output and disk. Where the system allows no namespaces and this is
root, a throwaway user and the limits remain (`auto`), and elsewhere nothing is run.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import marshal
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import psutil

from mmrl.config.reward_code import Isolation
from mmrl.errors import ConfigError
from mmrl.rewards.base import RewardFailure

Stop = Literal["time", "memory"]

_INIT = Path(__file__).with_name("init.py")
_LOOK_S = 0.1
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """wall_s: seconds until it is stopped. memory_bytes: of all its processes together; also of each one's addresses,
    unless `any_addresses`. output_bytes: of each file that it writes, standard output and error included.
    disk_bytes: of all files under /tmp."""

    wall_s: float
    memory_bytes: int
    processes: int = 16
    output_bytes: int = 4 * 2**20
    disk_bytes: int = 32 * 2**20
    any_addresses: bool = False


@dataclass(frozen=True)
class Run:
    """What came of a run. exit_code: 0 for a good end, 128 + n where signal n ended it.
    stopped: why it was stopped, None where it ended by itself."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    stopped: Stop | None
    seconds: float


class Sandbox:
    """visible: paths of the host that programs may read, besides the system's folders and the Python that runs mmrl.

    Raises:
        ConfigError: the system does not allow this isolation; says what to do.
    """

    def __init__(self, isolation: Isolation = "auto", *, visible: Sequence[str] = ()) -> None:
        self._namespaces = _choose(isolation)
        self._visible = [*_python_folders(), *visible]

    def run(self, argv: Sequence[str], *, files: Mapping[str, str | bytes], stdin: bytes = b"", limits: Limits) -> Run:
        """Run a program whose `files` lie in its working folder.

        Raises:
            RewardFailure: the sandbox itself did not come about.
        """
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="mmrl-sandbox-", ignore_cleanup_errors=True)
            )
            for name, content in files.items():
                Path(folder, name).write_bytes(content.encode() if isinstance(content, str) else content)
            spec = self._spec(argv, folder, limits)
            if not self._namespaces:
                os.chown(folder, int(str(spec["uid"])), -1)
            given, out, err, report = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(4))
            given.write(stdin)
            given.seek(0)
            spec["report_fd"] = report.fileno()
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_INIT), marshal.dumps(spec).hex()],
                stdin=given,
                stdout=out,
                stderr=err,
                env=_ENVIRONMENT,
                pass_fds=(report.fileno(),),
                start_new_session=True,
            )
            stack.callback(_kill_tree, process)
            stopped = _watch(process, limits, began)
            _kill_tree(process)
            if trouble := _content(report, 2**16).decode(errors="replace"):
                raise RewardFailure(f"the sandbox could not be made: {trouble}")
            seconds = time.monotonic() - began
            size = limits.output_bytes
            return Run(process.wait(), _content(out, size), _content(err, size), stopped, seconds)

    def _spec(self, argv: Sequence[str], folder: str, limits: Limits) -> dict[str, object]:
        uid = _throwaway_uid()
        return {
            "argv": list(argv),
            "folder": folder,
            "namespaces": self._namespaces,
            "uid": uid,
            "visible": self._visible,
            "memory_bytes": 0 if limits.any_addresses else limits.memory_bytes,
            "cpu_s": int(limits.wall_s) + 1,
            "processes": limits.processes,
            "output_bytes": limits.output_bytes,
            "disk_bytes": limits.disk_bytes,
        }


@functools.cache
def _choose(isolation: Isolation) -> bool:
    """Whether runs get namespaces. Tried out, since systems forbid them in many ways.

    Without them nothing but another user keeps a program from killing every process of this one (`kill -1`), so where
    neither is to be had nothing is run.
    """
    if sys.platform != "linux":
        raise ConfigError("running what a policy wrote needs Linux: its namespaces keep programs apart from the run")
    trouble = _trouble_with(namespaces=True)
    if trouble is None:
        return True
    if isolation == "namespaces" or _throwaway_uid() is None:
        raise ConfigError(
            f"this system allows no namespaces ({trouble}), which keep what a policy wrote from network, files and "
            "processes; allow them (sysctl kernel.unprivileged_userns_clone=1, or a container's "
            "--security-opt seccomp=unconfined), or run as root with `isolation: auto`"
        )
    if (problem := _trouble_with(namespaces=False)) is not None:
        raise ConfigError(
            f"this system allows no namespaces ({trouble}), and what a policy wrote cannot run as a user of its own "
            f"either ({problem}): that user must be able to read {sys.executable}"
        )
    _logger.warning(
        "this system allows no namespaces (%s): what a policy wrote runs as a throwaway user and under limits, but can "
        "reach the network and read what everybody may read",
        trouble,
    )
    return False


def _throwaway_uid() -> int | None:
    """A user id that nothing else has, as root may become; None for others, and for a root that is no other user."""
    if os.geteuid() != 0:
        return None
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(ranges, key=lambda one: one[2])
    count = min(count, 2**31)
    return random.randint(first + count // 2, first + count - 2) if count >= 2**15 else None


def _trouble_with(*, namespaces: bool) -> str | None:
    sandbox = Sandbox.__new__(Sandbox)
    sandbox._namespaces, sandbox._visible = namespaces, _python_folders()
    try:
        run = sandbox.run([sys.executable, "-I", "-S", "-c", "pass"], files={}, limits=Limits(20.0, 2**30))
    except RewardFailure as failure:
        return str(failure)
    return None if run.exit_code == 0 else run.stderr.decode(errors="replace").strip() or f"exit code {run.exit_code}"


def _python_folders() -> list[str]:
    """The interpreter with its packages; a virtual environment lies apart from the Python that it was made of."""
    folders = {os.path.realpath(folder) for folder in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    return sorted({*folders, sys.prefix, os.path.dirname(os.path.realpath(sys.executable))})


def _watch(process: subprocess.Popen[bytes], limits: Limits, began: float) -> Stop | None:
    """Wait for its end, looking at its memory now and then; why it must be stopped, if it must."""
    watched = select.poll()
    descriptor = os.pidfd_open(process.pid)
    try:
        watched.register(descriptor, select.POLLIN)
        while True:
            left_s = began + limits.wall_s - time.monotonic()
            if left_s <= 0:
                return "time"
            if watched.poll(1000 * min(left_s, _LOOK_S)):
                return None
            if _memory_of(process.pid) > limits.memory_bytes:
                return "memory"
    finally:
        os.close(descriptor)


def _memory_of(pid: int) -> int:
    """Bytes that a process and all that came of it hold by themselves."""
    total = 0
    for one in _descendants(pid):
        with contextlib.suppress(psutil.Error):
            memory = one.memory_info()
            total += memory.rss - memory.shared
    return total


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill it and all that came of it. Orphans stay below it, so none escapes while it lives."""
    while process.poll() is None and (alive := [one for one in _descendants(process.pid) if _is_alive(one)]):
        for one in alive:
            with contextlib.suppress(psutil.Error):
                one.kill()
        time.sleep(0.001)
    if process.poll() is None:
        process.kill()
    process.wait()


def _content(file: IO[bytes], limit: int) -> bytes:
    file.seek(0)
    return file.read(limit)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def find_program(names: Sequence[str]) -> str | None:
    """The path of the first of the programs that is installed."""
    return next((path for name in names if (path := shutil.which(name))), None)
