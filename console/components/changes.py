"""Callbacks of widgets that lose no change.

Reading `st.session_state` is a place where Streamlit turns to a rerun that waits, by an exception. In a callback that
would end it before it has done anything, and the change would be lost: the widget counts as having told it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import RerunException, StopException


def changed(key: str, store: Callable[[Any], object]) -> Callable[[], None]:
    """For `on_change`: gives `store` the widget's new value, whatever waits; the rerun that waited comes after it."""

    def change() -> None:
        waiting: BaseException | None = None
        while True:
            try:
                value = st.session_state[key]
                break
            except (RerunException, StopException) as request:
                waiting = request
        store(value)
        if waiting is not None:
            raise waiting

    return change
