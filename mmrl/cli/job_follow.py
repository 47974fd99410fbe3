"""Following jobs from a shell: their logs as they grow, and their end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TextIO

from mmrl.cli.output import note
from mmrl.errors import EXIT_OK, EXIT_RUN_CANCELLED, EXIT_RUN_FAILED, MmrlError, NotFoundError, RunFailedError
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.jobs.states import JobState
from mmrl.jobs.sweeping import sweep
from mmrl.runs.logs import LogSource, start_of_last_lines
from mmrl.runs.run_logs import RunLogs

Stream = Literal["stderr", "stdout"]

_CHUNK_BYTES = 1 << 16


class WaitTimeoutError(MmrlError):
    """The jobs did not end in the time that was given."""


def exit_code_of(jobs: Sequence[Job]) -> int:
    """Of several jobs the worst: failed, then cancelled, then done."""
    states = {job.state for job in jobs}
    if JobState.FAILED in states:
        return EXIT_RUN_FAILED
    return EXIT_RUN_CANCELLED if JobState.CANCELLED in states else EXIT_OK


def wait_for(
    jobs: Jobs, ids: Sequence[str], *, poll_s: float, timeout_s: float | None, tell: Callable[[Job], None]
) -> list[Job]:
    """The jobs once all have ended. tell: is given each job whose state is another than before.

    Raises WaitTimeoutError.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    seen: dict[str, JobState] = {}
    while True:
        sweep(jobs.database)
        found = [jobs.get(job_id) for job_id in ids]
        for job in found:
            if seen.get(job.id) != job.state:
                tell(job)
                seen[job.id] = job.state
        if all(job.is_terminal for job in found):
            return found
        if deadline is not None and time.monotonic() > deadline:
            open_jobs = ", ".join(f"{job.short_id} ({job.state})" for job in found if not job.is_terminal)
            raise WaitTimeoutError(f"after {timeout_s:g} s these have not ended: {open_jobs}; they stay as they are")
        time.sleep(poll_s)


def log_sources(
    job: Job, logs: RunLogs, *, stream: Stream, attempt: int | None = None, since: int = 1
) -> dict[int, LogSource]:
    """attempt -> its log, of those from `since` on, ascending.

    Raises RunFailedError where its store does not answer, NotFoundError for an `attempt` that is not there.
    """
    numbers = logs.attempts(job.attempt)
    if attempt is not None and attempt not in numbers:
        there = ", ".join(map(str, numbers)) or "none"
        raise NotFoundError(f"job {job.short_id} has no attempt {attempt} in {job.run_dir}; attempts there: {there}")
    found: dict[int, LogSource] = {}
    for number in numbers if attempt is None else [attempt]:
        if number >= since:
            files = {file.name: file.source for file in logs.files(number, is_over=job.is_terminal)}
            if f"{stream}.log" in files:
                found[number] = files[f"{stream}.log"]
    return found


def refuse_elsewhere(jobs: JobReads, job: Job, logs: RunLogs) -> None:
    """Raises NotFoundError where the run directory is a folder that is not on this machine. A job of which nothing ever
    began, since its inputs never came, has none anywhere, and no log."""
    if not logs.is_in_a_store and not logs.folder.is_dir() and jobs.may_have_begun(job.id):
        raise NotFoundError(
            f"the run directory of job {job.short_id}, {job.run_dir}, is not on this machine; its logs are read where "
            "it is"
        )


def print_log(jobs: JobReads, job: Job, *, stream: Stream, attempt: int | None, tail: int | None) -> None:
    """The logs of all attempts, or of one; with `tail` its last lines only, of the last attempt if none is named."""
    logs = RunLogs(job.run_dir)
    refuse_elsewhere(jobs, job, logs)
    sources = list(log_sources(job, logs, stream=stream, attempt=attempt).values())
    for source in sources if tail is None else sources[-1:]:
        for text in _texts(source, [0 if tail is None else start_of_last_lines(source, tail)]):
            _write(text, sys.stdout)


def untold_failure(job: Job) -> str | None:
    """Why a job failed, where the end of its log does not say so: it never began, or it was killed."""
    if job.state is not JobState.FAILED or not job.error_message:
        return None
    first_line = job.error_message.splitlines()[0]
    return None if first_line in _last_words(job) else job.error_message


def _last_words(job: Job) -> str:
    try:
        source = list(log_sources(job, RunLogs(job.run_dir), stream="stderr").values())[-1]
        with source.open("rb") as file:
            file.seek(start_of_last_lines(source, 50))
            return file.read().decode("utf-8", "replace")
    except (MmrlError, OSError, IndexError):
        return ""


class Follower:
    """Prints the logs of a job as they grow, over all attempts. out: where; tail: begin with so many last lines.

    tell: is given the job each time that it has come to stand where nothing is written: queued, paused or lost, or
    starting with its inputs on their way.
    """

    def __init__(
        self,
        jobs: Jobs,
        job_id: str,
        *,
        out: TextIO,
        poll_s: float,
        stream: Stream = "stderr",
        tail: int | None = None,
        tell: Callable[[Job], None] | None = None,
    ) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._out = out
        self._poll_s = poll_s
        self._stream: Stream = stream
        self._tail = tail
        self._tell = tell
        self._told: JobState | None = None
        self._told_fetches: set[int] = set()
        self._outage: RunFailedError | None = None
        self._logs: RunLogs | None = None
        self._since = 1
        self._places: dict[int, list[int]] = {}

    def run(self, until: Callable[[], bool] = lambda: False) -> Job:
        """Until the job has ended, or `until` says so. Returns it as it stands then. May be called again."""
        while True:
            is_over = until()
            sweep(self._jobs.database)
            job = self._jobs.get(self._job_id)
            self._print_new(job)
            if self._tell is not None and self._is_news(job):
                self._tell(job)
            self._told = job.state
            if job.is_terminal or is_over:
                return job
            time.sleep(self._poll_s)

    def _is_news(self, job: Job) -> bool:
        if job.state is JobState.STARTING:
            is_new = job.attempt not in self._told_fetches and bool(self._jobs.fetches([job]))
            self._told_fetches |= {job.attempt} if is_new else set()
            return is_new
        return job.state is not self._told and not (job.is_held or job.is_terminal)

    def _print_new(self, job: Job) -> None:
        """Of attempts that others have taken the place of, once more what they wrote last, and never again."""
        self._logs = self._logs or RunLogs(job.run_dir)
        refuse_elsewhere(self._jobs, job, self._logs)
        try:
            sources = log_sources(job, self._logs, stream=self._stream, since=self._since)
        except RunFailedError as error:
            if job.is_terminal:
                raise
            self._note_outage(error)
            return
        self._outage = None
        for number, source in sources.items():
            try:
                if number not in self._places:
                    self._places[number] = [0 if self._tail is None else start_of_last_lines(source, self._tail)]
                for text in _texts(source, self._places[number]):
                    _write(text, self._out)
            except OSError:
                if not self._logs.is_in_a_store or job.is_terminal:
                    raise
        self._since = max(self._since, job.attempt)
        self._tail = None

    def _note_outage(self, error: RunFailedError) -> None:
        """A store that is away is told once, and asked again."""
        if self._outage is None:
            note(f"{error}; it is tried again")
        self._outage = error


def _texts(source: LogSource, place: list[int]) -> Iterator[str]:
    """What the file has from place[0] on, which is moved along; a character that is not whole yet is left for later.
    A file of this machine that was cut off, as those do who keep logs short, is read from its beginning."""
    with source.open("rb") as file:
        if isinstance(source, Path) and file.seek(0, os.SEEK_END) < place[0]:
            place[0] = 0
        file.seek(place[0])
        while data := file.read(_CHUNK_BYTES):
            text, used = _decode(data)
            place[0] += used
            yield text
            if used < len(data):
                file.seek(place[0])
                if used == 0:
                    return


def _decode(data: bytes) -> tuple[str, int]:
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode("utf-8"), len(data) - cut
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace"), len(data)


def _write(text: str, out: TextIO) -> None:
    """Logs come from models and users too: what a terminal might obey is printed as escapes, but for line ends."""
    from mmrl.runs.inert import inert

    out.write(inert(text))
    out.flush()
