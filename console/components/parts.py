"""Parts of a page that stand for themselves: what goes wrong in one is told in its place, and the rest stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from console.sessions import SignInNeededError
from mmrl.errors import MmrlError
from mmrl.jobs.errors import DatabaseUnavailableError


@contextmanager
def part(what: str) -> Iterator[None]:
    """Around one part of a page. what: its name in a sentence, such as `the queue`.

    Errors that people can mend become a sentence; a bug goes on, to the log and to the page's own handler.
    """
    try:
        yield
    except SignInNeededError as error:
        sign_in_again(str(error))
    except DatabaseUnavailableError:
        problem(f"The job database does not answer, so {what} cannot be shown. Runs go on; try again in a moment.")
    except MmrlError as error:
        problem(f"Cannot show {what}: {error}")
    except OSError as error:
        problem(f"Cannot show {what}: {error.filename or 'a file'}: {error.strerror or error}")


@contextmanager
def attempted() -> Iterator[None]:
    """Around one change that somebody asked for: why it was refused is told where they asked."""
    try:
        yield
    except MmrlError as error:
        problem(str(error))


def sign_in_again(why: str) -> None:
    with st.container(border=True):
        st.text(f"{why[:1].upper()}{why[1:]}.")
        st.html('<a href="/" target="_self">Sign in</a>')


def problem(text: str) -> None:
    """An error in plain words. The text is never read as Markdown."""
    with st.container(border=True):
        st.text(text)


def empty_state(title: str, text: str) -> None:
    """What stands where nothing is there yet: what belongs here, and what to do next."""
    with st.container(border=True):
        st.markdown(f"**{title}**")
        st.write(text)


def no_worker() -> None:
    """What to do where no worker is alive."""
    with st.container(border=True, key="no_worker"):
        st.write(
            "**No worker is alive**, so that jobs wait. Start one on any machine that shares this home and database:"
        )
        st.code("mmrl worker start", language=None)
