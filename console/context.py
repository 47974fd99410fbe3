"""What every page needs: the job database, opened once a process, and who looks at it.

No page, component or service opens the database itself. Nothing of a person is kept in the cache.
"""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from console.services.answers import Answers
from console.services.conversations import Conversations
from console.services.processes import Processes
from console.visitors import visitor
from mmrl.config.base import home
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import URL_VARIABLE, Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import User
from mmrl.jobs.sweeping import sweep
from mmrl.jobs.users import Users

_CONNECTIONS = 8
_LOOK_EVERY_S = 5.0


def database() -> Database:
    """The job database that this process was told of, shared by all sessions.

    Raises DatabaseUnavailableError while it does not answer, SchemaError where it is of another version; neither is
    remembered, so the next look finds it as soon as it is there.
    """
    return _open(str(home().absolute()), os.environ.get(URL_VARIABLE) or "")


def viewer() -> User:
    """Who looks at the page, as the database knows them now. Services check this user's role at every change.

    Raises SignInNeededError, ForbiddenError for whoever may not enter.
    """
    return visitor(Users(database()))


def jobs() -> Jobs:
    """What can be asked of jobs, in the viewer's name. A job whose last worker is gone is told as lost."""
    _look_for_lost(str(home().absolute()), os.environ.get(URL_VARIABLE) or "")
    return Jobs(database(), actor=viewer())


def fleet() -> Fleet:
    return Fleet(database())


def catalogue() -> Catalogue:
    return Catalogue(database())


def processes() -> Processes:
    """mmrl's commands that run beside the console, shared by all sessions."""
    return _start_processes(str(home().absolute()))


def conversations() -> Conversations:
    """Conversations with checkpoints, in the viewer's name."""
    return Conversations(viewer(), database().settings)


def answers() -> Answers:
    """Answers of checkpoints that are under way, shared by all sessions."""
    return _start_answers(str(home().absolute()))


@st.cache_resource(show_spinner=False, max_entries=4, ttl=_LOOK_EVERY_S)
def _look_for_lost(home_path: str, url: str) -> None:
    """Once in a while, however many sessions ask."""
    sweep(_open(home_path, url))


@st.cache_resource(show_spinner=False, max_entries=4)
def _start_answers(home_path: str) -> Answers:
    return Answers(Path(home_path) / "conversations")


@st.cache_resource(show_spinner=False, max_entries=4)
def _start_processes(home_path: str) -> Processes:
    return Processes(Path(home_path) / "console" / "processes")


@st.cache_resource(show_spinner=False, max_entries=4, on_release=Database.close)
def _open(home_path: str, url: str) -> Database:
    """Both arguments are read by `Database.open` from the environment; here they tell databases apart."""
    return Database.open(pool_size=_CONNECTIONS)
