"""Whether a run directory is free for a new job: it holds no run, and is no other open job's, however it is written.

Links are followed as the machine that submits sees them, and only to compare: workers may see them otherwise, so a job
keeps the path that it was given. The disk is looked at before the transaction that writes the job, since one that hangs
would hold up all who write. The transaction makes sure that no job has come or gone meanwhile that the look knew
nothing of; else it is taken back, and the disk is looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from mmrl.errors import ConfigError, ConflictError
from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.records import local_path
from mmrl.jobs.states import TERMINAL, JobState
from mmrl.runs.layout import was_begun
from mmrl.runs.mirror import is_address

_TRIES = 3
"""Looks from outside, before the disk is looked at within the transaction: jobs come all the time."""
_LOCK = 0x6D6D726C_72756E73
"""Of PostgreSQL: submissions that name a run directory are compared one after the other."""
_OPEN = [state.value for state in JobState if state not in TERMINAL]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Look:
    """What the disk told. places: by run directory of each job that was open then, and of the new one, where it lies.

    sharers: ids of the open jobs in the place of the new one. fault: why its path can be none.
    """

    places: Mapping[str, str]
    sharers: frozenset[str]
    holds_run: bool
    fault: str | None


class LookAgain(Exception):
    """Jobs came or went since the disk was looked at."""


def one_spelling(run_dir: str) -> str:
    """The same for all plain ways to write one run directory, and whole, since workers and trainers have other working
    directories."""
    return run_dir.rstrip("/") if is_address(run_dir) else os.path.abspath(run_dir)


def looking_first(database: Database, run_dir: str | None, write: Callable[[Look | None], _Result]) -> _Result:
    """What `write` gives, which writes a job in a transaction of its own and calls `refuse_taken` with the look in it.

    run_dir: as given; without one there is nothing to look at.
    """
    for _ in range(_TRIES if run_dir is not None else 0):
        assert run_dir is not None
        with database.reading() as connection:
            others = _open_jobs(connection)
        try:
            return write(_look(one_spelling(run_dir), others))
        except LookAgain:
            continue
    return write(None)


def refuse_taken(connection: sa.Connection, job_id: str, run_dir: str, look: Look | None) -> None:
    """Two jobs in one directory would each stop the other, and a run that lies there is not this job's; a worker
    refuses both too, but hours later. run_dir: in one spelling. look: None is to look now.

    Raises ConflictError, ConfigError for a path that no disk takes, LookAgain where the look is not of now.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    others = _open_jobs(connection)
    others.pop(job_id, None)
    look = _look(run_dir, others) if look is None else look
    if look.fault is not None:
        raise ConfigError(look.fault)
    if look.holds_run:
        raise ConflictError(
            f"{run_dir} holds a run already; give another one, or go on with the job of that run: `mmrl job resume`"
        )
    for other, (theirs, state) in others.items():
        if look.places.get(theirs) == look.places[run_dir]:
            what = run_dir if theirs == run_dir else f"{run_dir} is the folder {theirs}, and that"
            raise ConflictError(f"{what} is the run directory of job {other}, which is {state}; give another one")
    if not look.sharers <= others.keys() or not look.places.keys() >= {theirs for theirs, _ in others.values()}:
        raise LookAgain


def _open_jobs(connection: sa.Connection) -> dict[str, tuple[str, str]]:
    """id -> run directory and state, the oldest first."""
    table = tables.jobs
    query = sa.select(table.c.id, table.c.run_dir, table.c.state).where(table.c.state.in_(_OPEN)).order_by(table.c.id)
    return {row.id: (row.run_dir, row.state) for row in connection.execute(query)}


def _look(run_dir: str, others: Mapping[str, tuple[str, str]]) -> Look:
    parents: dict[str, str] = {}
    places = {each: _place(each, parents) for each in {run_dir, *(theirs for theirs, _ in others.values())}}
    sharers = frozenset(other for other, (theirs, _) in others.items() if places[theirs] == places[run_dir])
    holds_run, fault = False, None
    try:
        holds_run = not is_address(run_dir) and was_begun(Path(run_dir), 1)
    except PermissionError:
        pass  # as far as who submits may look
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else error
        fault = f"{run_dir} can be no run directory: {told}; give another one"
    return Look(places, sharers, holds_run, fault)


def _place(run_dir: str, parents: dict[str, str]) -> str:
    """Where it lies once all links are followed; as it is where it lies on no disk. parents: those known already."""
    path = local_path(run_dir)
    if path is None:
        return run_dir
    folder, name = os.path.split(path)
    try:
        if folder not in parents:
            parents[folder] = os.path.realpath(folder)
        whole = os.path.join(parents[folder], name)
        return os.path.realpath(whole) if name in ("", ".", "..") or os.path.islink(whole) else whole
    except (OSError, ValueError):
        return run_dir
