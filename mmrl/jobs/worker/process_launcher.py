"""Attempts as processes of this machine, each in a process group and session of its own.

The trainer runs under a small shell that writes its exit code into the run directory: a worker that is not its parent,
since it took over from one that died, learns from there how it ended. Output goes to files, never to pipes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from mmrl.config.base import home
from mmrl.jobs.records import Attempt
from mmrl.jobs.users import TOKEN_VARIABLE
from mmrl.jobs.worker.launcher import Ended, Launch, LaunchFault, Unreachable, mark_of
from mmrl.jobs.worker.processes import (
    MARK_VARIABLE,
    ProcessIdentity,
    boot_id,
    children_of,
    host_name,
    identity_of,
    members,
    send,
)
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs.stopping import StopWord, request_stop

SHELL = ("/bin/sh", "-c", 'trap : TERM INT; "$@"; code=$?; echo $code > "$0.tmp" && mv "$0.tmp" "$0"; exit $code')
_KEPT_FROM_TRAINERS = ("MMRL_DATABASE_URL", TOKEN_VARIABLE)


class ProcessLauncher:
    def start(self, launch: Launch) -> ProcessHandle:
        found = self.look(launch.lease.job_id, launch.lease.attempt, launch.folder)
        if found is not None:
            return found
        environment = {name: value for name, value in os.environ.items() if name not in _KEPT_FROM_TRAINERS}
        environment |= {"PYTHONUNBUFFERED": "1", "MMRL_HOME": str(home().absolute())}
        environment |= {**launch.environment, MARK_VARIABLE: launch.mark}
        words = [*SHELL, str(launch.folder.exit_file), *launch.command]
        try:
            with launch.folder.stdout.open("ab") as stdout, launch.folder.stderr.open("ab") as stderr:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=environment,
                    cwd=launch.folder.run_dir,
                    start_new_session=True,
                )
        except OSError as error:
            raise LaunchFault(f"cannot start {launch.command[0]}: {error.strerror} ({error.filename})") from error
        return ProcessHandle(launch.mark, launch.folder, identity_of(process.pid), process.pid, process)

    def find(self, attempt: Attempt, folder: RunFolder) -> ProcessHandle | None:
        """Raises Unreachable for an attempt of another machine. After a reboot of this one nothing can be running."""
        if attempt.host is not None and attempt.host != host_name():
            raise Unreachable(f"it ran on {attempt.host}")
        if attempt.boot_id is not None and attempt.boot_id != boot_id():
            return None
        if attempt.pid is not None and attempt.pid_start_time is not None:
            leader = ProcessIdentity(attempt.pid, attempt.pid_start_time, attempt.boot_id or boot_id())
            handle = ProcessHandle(mark_of(attempt.job_id, attempt.attempt), folder, leader, attempt.pgid, None)
            return None if handle.is_gone() else handle
        return self.look(attempt.job_id, attempt.attempt, folder)

    def look(self, job_id: str, attempt: int, folder: RunFolder) -> ProcessHandle | None:
        """What carries the mark on this machine, whoever started it."""
        mark = mark_of(job_id, attempt)
        found = members(mark)
        if not found:
            return None
        leader = min(found, key=lambda process: (process.start_time, process.pid))
        with contextlib.suppress(ProcessLookupError):
            return ProcessHandle(mark, folder, leader, os.getpgid(leader.pid), None)
        return None


class ProcessHandle:
    """leader: the shell that the trainer runs under. process: where this worker started it."""

    def __init__(
        self,
        mark: str,
        folder: RunFolder,
        leader: ProcessIdentity | None,
        pgid: int | None,
        process: subprocess.Popen[bytes] | None,
    ) -> None:
        self._mark = mark
        self._folder = folder
        self._leader = leader
        self._pgid = pgid
        self._process = process

    @property
    def identity(self) -> Mapping[str, Any]:
        leader = self._leader
        if leader is None:
            return {}
        return {
            "pid": leader.pid,
            "pid_start_time": leader.start_time,
            "boot_id": leader.boot_id,
            "host": host_name(),
            "pgid": self._pgid,
        }

    @property
    def has_started(self) -> bool:
        return True

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when the leader ends; the caller closes it. None where there is none."""
        try:
            return os.pidfd_open(self._leader.pid) if self._leader is not None and self._leader.is_alive else None
        except (AttributeError, OSError):
            return None

    def poll(self) -> Ended | None:
        """The trainer has ended when its shell has; what it leaves running is ended after that."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return None
            return Ended(128 - code if code < 0 else code)
        if self._leader is not None and self._leader.is_alive:
            return None
        code = self._folder.exit_code()
        return Ended(code) if code is not None or not self._trainers() else None

    def ask_to_stop(self, word: StopWord) -> None:
        """The trainer alone is told, not the processes that it works with: it may need them for its last step."""
        with contextlib.suppress(Exception):
            request_stop(self._folder.attempt_dir, word, with_signal=True)
        send(self._trainers(), signal.SIGTERM)

    def press(self) -> None:
        send(self._members(), signal.SIGTERM)

    def kill(self) -> None:
        send(self._members(), signal.SIGKILL)
        self._reap()

    def is_gone(self) -> bool:
        self._reap()
        return not self._members()

    def _trainers(self) -> list[ProcessIdentity]:
        """The trainer itself: the child of the shell; where the shell is gone, what leads its group now."""
        if self._leader is not None and self._leader.is_alive:
            found = [identity_of(pid) for pid in children_of(self._leader.pid)]
            return [process for process in found if process is not None]
        return sorted(self._members(), key=lambda process: process.start_time)[:1]

    def _members(self) -> list[ProcessIdentity]:
        since = self._leader.start_time if self._leader is not None else 0.0
        return members(self._mark, self._pgid, since=since)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.poll()
