"""The logs of a job's run, on this machine or in its store."""

from __future__ import annotations

from mmrl.errors import NotFoundError
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job
from mmrl.runs.inert import inert
from mmrl.runs.logs import LogFile, LogPiece, LogSearch, read_after, read_before, search_before
from mmrl.runs.run_logs import RunLogs

FIRST_NAME = "stderr.log"
"""What is shown unless another is chosen: progress, warnings and errors go there."""


def logs_of(jobs: JobReads, job: Job) -> list[LogFile]:
    """Its logs, those of the last attempt first, and of an attempt what is read most. A run in a store is read there.

    Raises NotFoundError where its run directory is a folder that is not on this machine, RunFailedError where its store
    does not answer.
    """
    logs = RunLogs(job.run_dir)
    if not logs.is_in_a_store and not logs.folder.is_dir():
        if not jobs.may_have_begun(job.id):
            return []
        raise NotFoundError(f"the run directory {job.run_dir} is not on this machine, so its logs cannot be read here")
    files = [file for attempt in logs.attempts(job.attempt) for file in logs.files(attempt)]
    return sorted(files, key=lambda file: (-file.attempt, file.name != FIRST_NAME, file.name))


def chosen(files: list[LogFile], attempt: int | None, name: str | None) -> LogFile | None:
    """The one that the address names, else the first of that attempt, else the first of all."""
    fitting = [file for file in files if attempt in (None, file.attempt)]
    return next((file for file in fitting if file.name == name), next(iter(fitting or files), None))


def tail(file: LogFile, *, end: int | None = None) -> LogPiece:
    """The last piece, or the one that ends at byte `end`. Raises OSError, such as for a file that is gone."""
    return read_before(file.source, end)


def piece_at(file: LogFile, offset: int) -> LogPiece:
    """The piece that begins at a match of a search."""
    return read_after(file.source, offset)


def search(file: LogFile, text: str, *, end: int | None = None) -> LogSearch:
    """The last lines that hold the text, from byte `end` backwards; at most 100, and no more than 64 MB read."""
    return search_before(file.source, text, end)


def shown(text: str) -> str:
    """Log text without what a terminal or a browser might obey; a progress line that was written over and over is told
    by its last state."""
    lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return inert("\n".join(lines))
