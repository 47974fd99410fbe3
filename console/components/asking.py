"""Questions that a live part asks: the whole page opens the dialog, since one of a live part goes with its next look.

What is asked about is kept until it is answered or dismissed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st


def ask(question: str, subject: Any = True) -> None:
    """Opens the dialog `question` about a subject, an id for example, at once."""
    st.session_state[question] = subject
    st.rerun()


def asked(question: str) -> Any:
    """What the question is about; None where it is not open."""
    return st.session_state.get(question)


def answered(question: str) -> Callable[[], None]:
    """Closes it: for `on_dismiss`, and to be called before the page runs anew."""
    return lambda: st.session_state.pop(question, None)
