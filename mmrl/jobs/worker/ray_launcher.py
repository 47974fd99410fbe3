"""Attempts as jobs of a Ray cluster, by the Ray Jobs API. Ray is never asked for the truth about a job: it forgets all
when its head goes, so the run directory, which worker and cluster share, says how an attempt ended.

The id of the Ray job is that of the job and its attempt, and Ray takes an id once: a second start finds the first.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mmrl.errors import ConfigError
from mmrl.jobs.records import Attempt
from mmrl.jobs.worker.launcher import Ended, Launch, LaunchFault, Unreachable, external_id_of, mark_of
from mmrl.jobs.worker.process_launcher import SHELL
from mmrl.jobs.worker.processes import MARK_VARIABLE, members
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.working_dir import WorkingDir
from mmrl.runs.stopping import StopWord, request_stop

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

PENDING_S = 900.0
"""A Ray job that has not begun by then is given up; Ray itself says why it waits."""
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


def check_cluster(address: str, *, wait_s: float = 60.0, say: Callable[[str], None] = lambda text: None) -> None:
    """Raises ConfigError for an address that cannot be a dashboard's, or at which no Ray answers within wait_s.

    A worker that took jobs for it would use up their attempts. A head opens its dashboard some seconds after itself.
    """
    what = f"--ray-address {address}"
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}; give the URL of a dashboard, such as http://127.0.0.1:8265") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{what} is no URL of a Ray dashboard; give one such as http://127.0.0.1:8265")
    deadline, is_told = time.monotonic() + wait_s, False
    while (fault := _fault_of(address, parts.hostname, port)) is not None:
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"{what}: no Ray dashboard answers there ({fault}); start one with `ray start --head "
                "--dashboard-host 127.0.0.1`, or leave the option out"
            )
        if not is_told:
            say(f"waits for the Ray dashboard at {address}, {wait_s:g} s at most: {fault}")
        is_told = True
        time.sleep(1.0)


def _fault_of(address: str, host: str, port: int) -> str | None:
    """Why no Ray answers at the address; None where one does."""
    try:
        with socket.create_connection((host, port), timeout=10.0):
            pass
        RayLauncher(address).ask(lambda client: client.get_version())
    except (Unreachable, OSError, RuntimeError) as error:
        return _first_line(error)
    return None


class RayLauncher:
    """address: of the dashboard, such as http://127.0.0.1:8265. working_dir: code of the user's own, sent along."""

    def __init__(self, address: str, *, working_dir: WorkingDir | None = None, pending_s: float = PENDING_S) -> None:
        self._address = address
        self._working_dir = working_dir
        self._pending_s = pending_s
        self._client: JobSubmissionClient | None = None

    def start(self, launch: Launch) -> RayHandle:
        """Raises LaunchFault where the cluster does not answer or refuses."""
        settings: dict[str, Any] = {"env_vars": {**launch.environment, MARK_VARIABLE: launch.mark}}
        if self._working_dir is not None:
            settings |= self._working_dir.runtime_env()
        try:
            self.ask(
                lambda client: client.submit_job(
                    entrypoint=entrypoint(launch),
                    submission_id=launch.external_id,
                    runtime_env=settings,
                    metadata={"job": launch.lease.job_id, "attempt": str(launch.lease.attempt)},
                    **_resources(launch),
                )
            )
        except Unreachable as error:
            raise LaunchFault(str(error)) from error
        except RuntimeError as error:
            if "already exists" not in str(error):
                raise LaunchFault(f"Ray refused the job: {_first_line(error)}") from error
        return RayHandle(self, launch.external_id, launch.mark, launch.folder)

    def find(self, attempt: Attempt, folder: RunFolder) -> RayHandle | None:
        return self.look(attempt.job_id, attempt.attempt, folder)

    def look(self, job_id: str, attempt: int, folder: RunFolder) -> RayHandle | None:
        handle = RayHandle(self, external_id_of(job_id, attempt), mark_of(job_id, attempt), folder)
        if handle.status() is None:
            return None
        return None if handle.is_gone() else handle

    def ask(self, question: Callable[[JobSubmissionClient], Any]) -> Any:
        """Raises Unreachable where the cluster does not answer, RuntimeError for what it refuses."""
        try:
            if self._client is None:
                from ray.job_submission import JobSubmissionClient

                self._client = JobSubmissionClient(self._address)
            return question(self._client)
        except (ConnectionError, OSError) as error:
            self._client = None
            raise Unreachable(f"the Ray cluster at {self._address} does not answer: {_first_line(error)}") from error

    @property
    def pending_s(self) -> float:
        return self._pending_s


class RayHandle:
    def __init__(self, launcher: RayLauncher, external_id: str, mark: str, folder: RunFolder) -> None:
        self._launcher = launcher
        self._external_id = external_id
        self._mark = mark
        self._folder = folder
        self._pending_since = time.monotonic()

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"external_id": self._external_id}

    def fileno(self) -> int | None:
        return None

    @property
    def has_started(self) -> bool:
        with contextlib.suppress(Unreachable):
            return self.status() not in ("PENDING", None)
        return False

    def status(self) -> str | None:
        """Ray's word for where the job stands; None where Ray knows no such job. Raises Unreachable."""
        try:
            return str(self._launcher.ask(lambda client: client.get_job_status(self._external_id)).value)
        except RuntimeError as error:
            if "does not exist" in str(error) or "404" in str(error):
                return None
            raise Unreachable(f"Ray does not tell of {self._external_id}: {_first_line(error)}") from error

    def poll(self) -> Ended | None:
        code = self._folder.exit_code()
        if code is not None:
            return Ended(code)
        try:
            status = self.status()
        except Unreachable:
            return None
        if status is None:
            return Ended(None, "the Ray cluster knows nothing of the job any more; its head was restarted", True)
        if status == "PENDING":
            return self._waited_too_long()
        if status not in _ENDED:
            self._pending_since = time.monotonic()
            return None
        return Ended(self._folder.exit_code(), f"Ray: {status.lower()}: {self._message()}", status != "SUCCEEDED")

    def ask_to_stop(self, word: StopWord) -> None:
        """By the run directory: Ray would leave three seconds, and tell the processes that the trainer works with."""
        with contextlib.suppress(Exception):
            request_stop(self._folder.attempt_dir, word)

    def press(self) -> None:
        with contextlib.suppress(Unreachable, RuntimeError):
            self._launcher.ask(lambda client: client.stop_job(self._external_id))

    def kill(self) -> None:
        self.press()

    def is_gone(self) -> bool:
        """Ray says that the job has ended or knows none, and none of its processes is on this machine."""
        try:
            status = self.status()
        except Unreachable:
            return False
        return (status is None or status in _ENDED) and not members(self._mark)

    def _waited_too_long(self) -> Ended | None:
        waited_s = time.monotonic() - self._pending_since
        if waited_s < self._launcher.pending_s:
            return None
        message = self._message()
        self.press()
        return Ended(None, f"Ray did not begin the job within {waited_s:.0f} s: {message}", True)

    def _message(self) -> str:
        with contextlib.suppress(Unreachable, RuntimeError):
            info = self._launcher.ask(lambda client: client.get_job_info(self._external_id))
            return " ".join(str(info.message or "").split())
        return "no message"


def entrypoint(launch: Launch) -> str:
    """The command line for Ray's shell: no secret stands in it, and output goes to the files of the run directory."""
    words = [*SHELL, str(launch.folder.exit_file), *launch.command]
    outputs = f">>{shlex.quote(str(launch.folder.stdout))} 2>>{shlex.quote(str(launch.folder.stderr))}"
    return f"exec {shlex.join(words)} {outputs}"


def _resources(launch: Launch) -> dict[str, Any]:
    """What Ray sets aside for the trainer's own process: nothing where its work is done in workers of its own."""
    job = launch.lease.job
    placement = job.config.get("placement")
    has_workers = isinstance(placement, Mapping) and placement.get("executor") == "ray"
    if has_workers:
        return {}
    return {"entrypoint_num_cpus": job.cpus} | ({"entrypoint_num_gpus": job.gpus} if job.gpus else {})


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
