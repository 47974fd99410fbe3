"""Widgets whose values the server sets too, without losing what a person changes meanwhile.

Two things of Streamlit's would lose changes:

- A browser sends the values of all its widgets with each change. One that the server has just set may still be sent as
  it was before, and counts as changed by the person: it would undo what was set. So `tell` remembers what the browser
  may still hold, `changed` takes no notice of that, and `heard` forgets it once the browser has taken over what it was
  told.
- Reading a key of `st.session_state` is a place where Streamlit turns to a rerun that waits, by an exception. In a
  callback that would end it before it has done anything, and the change would be lost: the widget counts as having told
  it. The state as a whole is read without that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

_TOLD = "told_values"
"""Key of a widget -> what the browser may hold for it: what it had, and what it was told since, the last one last."""


def tell(key: str, value: Any) -> None:
    """Sets the value of a widget that may be on the page already."""
    if key in st.session_state:
        _told().setdefault(key, [st.session_state[key]]).append(value)
    st.session_state[key] = value


def heard() -> None:
    """For the beginning of a page, and of its live parts: what the browser has taken over is settled."""
    told = _told()
    for key in list(told):
        held = st.session_state.get(key)
        if held == told[key][-1] or held not in told[key]:
            del told[key]


def changed(key: str, store: Callable[[Any], object]) -> Callable[[], None]:
    """For `on_change`: gives `store` the value that a person gave the widget, whatever waits."""

    def change() -> None:
        state = st.session_state.to_dict()
        told = state.get(_TOLD, {})
        if state[key] not in told.get(key, ()):
            told.pop(key, None)
            store(state[key])

    return change


def _told() -> dict[str, list[Any]]:
    if _TOLD not in st.session_state:
        st.session_state[_TOLD] = {}
    found: dict[str, list[Any]] = st.session_state[_TOLD]
    return found
