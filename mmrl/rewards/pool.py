"""The trainer's end of the reward pool: starts the server process (`server.py`), sends jobs, collects outcomes.

A server that dies is started anew and given the unfinished jobs once more; if that one dies too, those jobs fail.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from mmrl.errors import ConfigError, MmrlError
from mmrl.rewards.outcome import Outcome
from mmrl.rewards.server import Job, Setup

LOAD_TIMEOUT_S = 120.0
"""Seconds for the rewards to load, a user's imports included."""

_STOP_TIMEOUT_S = 5.0
_BATCH = 64
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mmrl.rewards.server import serve; "
    "serve(int(sys.argv[2]))"
)
_logger = logging.getLogger(__name__)


class RewardPool:
    """Scores jobs in processes with deadlines. One call of `run` at a time; a context manager.

    Raises:
        ConfigError: a user's function does not load; names each.
        MmrlError: the processes do not start.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcome of each job, in order."""
        outcomes: dict[int, Outcome] = {}
        for is_last_try in (False, True):
            unfinished = [job for job in jobs if job.id not in outcomes]
            if not unfinished:
                break
            if self._process is None:
                self._start()
            problem = self._collect(unfinished, outcomes)
            if problem is not None:
                _logger.warning("the reward processes failed (%s)%s", problem, "" if is_last_try else "; trying again")
                self.close()
        lost = Outcome(error="the reward processes failed twice while it was waiting or running")
        return [outcomes.get(job.id, lost) for job in jobs]

    def close(self) -> None:
        """End the server, every worker and whatever they forked. The next `run` starts anew."""
        if self._process is None:
            return
        self._connection.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._process = None

    def __enter__(self) -> RewardPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        problems = self._handshake()
        if problems:
            self.close()
            raise ConfigError("\n".join(problems))

    def _handshake(self) -> list[str]:
        try:
            self._connection.send(self._setup)
            if self._connection.poll(LOAD_TIMEOUT_S):
                return self._connection.recv()
            trouble = f"they did not load within {LOAD_TIMEOUT_S:g} s; look for a reward function's slow import"
        except (EOFError, OSError):
            trouble = "their server process ended: " + (self._last_error() or "it left no message")
        self.close()
        raise MmrlError(f"the reward processes did not start: {trouble}")

    def _collect(self, jobs: Sequence[Job], outcomes: dict[int, Outcome]) -> str | None:
        """Send the jobs and receive until each has its outcome; what went wrong where some have not."""
        patience_s = max(job.deadline_s for job in jobs) + LOAD_TIMEOUT_S
        waiting = {job.id for job in jobs}
        try:
            for start in range(0, len(jobs), _BATCH):
                self._connection.send(jobs[start : start + _BATCH])
            while waiting:
                if not self._connection.poll(patience_s):
                    return f"no outcome came for {patience_s:g} s"
                job_id, outcome = self._connection.recv()
                outcomes[job_id] = outcome
                waiting.discard(job_id)
        except (EOFError, OSError):
            return self._last_error() or "their server process ended without a message"
        return None

    def _last_error(self) -> str:
        """The last line that the server wrote to its standard error."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


__all__ = ["LOAD_TIMEOUT_S", "Connection", "Job", "RewardPool", "Setup"]
