"""The trainer's end of the reward pool: starts the server process (`server.py`), sends jobs, collects outcomes.

A server that dies is started anew and given the unfinished jobs once more; if that one dies too, each is
tried alone, and those that end the server fail.
"""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from mmrl.errors import ConfigError, MmrlError
from mmrl.rewards.outcome import Outcome
from mmrl.rewards.runner.dispatcher import Done, Job
from mmrl.rewards.runner.server import Setup

LOAD_TIMEOUT_S = 120.0
"""Seconds for the rewards to load, a user's imports included."""

_STOP_TIMEOUT_S = 5.0
_JOBS_A_MESSAGE = 64
_MAX_CRASHES = 8
"""Jobs that may end the server alone, one after the other, before the rest is given up."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mmrl.rewards.runner.server import serve; "
    "serve(int(sys.argv[2]))"
)
_logger = logging.getLogger(__name__)


class RewardPool:
    """Scores jobs in processes with deadlines. Jobs are submitted in any number of calls, also while others run, and
    collected later; a context manager.

    Raises:
        ConfigError: a user's function does not load; names each.
        MmrlError: the processes do not start.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._ids = itertools.count()
        self._pending: dict[int, Job] = {}
        self._outcomes: dict[int, list[Outcome]] = {}
        self._problem: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def new_job(self, source: int, pickled_items: bytes, *, size: int, deadline_s: float) -> Job:
        return Job(next(self._ids), source, pickled_items, size, deadline_s)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Send jobs off. They run while the caller does something else, until it collects them."""
        if self._process is None:
            self._start()
        self._pending |= {job.id: job for job in jobs}
        self._problem = self._problem or self._send(jobs)

    def collect(self, jobs: Sequence[Job]) -> list[list[Outcome]]:
        """Wait for the outcomes of each of these jobs, in their order. All others are forgotten."""
        self._pending = {job.id: job for job in jobs}
        self._outcomes = {job.id: self._outcomes[job.id] for job in jobs if job.id in self._outcomes}
        problem = self._problem or self._receive()
        if problem is not None:
            _logger.warning("the reward processes failed (%s); trying again", problem)
            self._stop()
            self._start()
            problem = self._send([job for job in jobs if job.id not in self._outcomes]) or self._receive()
        if problem is not None:
            problem = self._receive_one_by_one(problem)
        lost = Outcome(error=f"the reward processes failed twice while it was waiting or running ({problem})")
        outcomes, self._outcomes, self._pending = self._outcomes, {}, {}
        return [outcomes.get(job.id) or [lost] * job.size for job in jobs]

    def _receive_one_by_one(self, problem: str) -> str:
        """Send what is left alone, so that a job that ends the server takes no other with it; the last trouble."""
        self._stop()
        left, num_crashes = [job for job in self._pending.values() if job.id not in self._outcomes], 0
        for job in left:
            if num_crashes == _MAX_CRASHES:
                break
            if self._process is None:
                self._start()
            self._pending = {job.id: job}
            trouble = self._send([job]) or self._receive()
            if trouble is not None:
                problem, num_crashes = trouble, num_crashes + 1
                self._stop()
        return problem

    def close(self) -> None:
        """End the server, every worker and whatever they forked; jobs that were not collected are forgotten. The next
        `submit` starts anew."""
        self._stop()
        self._pending, self._outcomes = {}, {}

    def _stop(self) -> None:
        self._problem = None
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
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _BOOT,
                    json.dumps([str(folder) for folder in sys.path]),
                    str(theirs.fileno()),
                ],
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
            trouble = self._last_error()
        self.close()
        raise MmrlError(f"the reward processes did not start: {trouble}")

    def _send(self, jobs: Sequence[Job]) -> str | None:
        """What went wrong, if anything."""
        try:
            for start in range(0, len(jobs), _JOBS_A_MESSAGE):
                self._connection.send(jobs[start : start + _JOBS_A_MESSAGE])
        except OSError:
            return self._last_error()
        return None

    def _receive(self) -> str | None:
        """Take outcomes until each job has its own; what went wrong where some have not."""
        patience_s = max((job.deadline_s for job in self._pending.values()), default=0.0) + LOAD_TIMEOUT_S
        waiting = self._pending.keys() - self._outcomes.keys()
        try:
            while waiting:
                if not self._connection.poll(patience_s):
                    return f"no outcome came for {patience_s:g} s"
                done: Done = self._connection.recv()
                self._outcomes |= {job_id: found for job_id, found in done if job_id in waiting}  # some were forgotten
                waiting.difference_update(job_id for job_id, _ in done)
        except (EOFError, OSError):
            return self._last_error()
        return None

    def _last_error(self) -> str:
        """The last line that the server, which has ended, wrote to its standard error."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "their server process ended without a message"
