"""Callbacks of widgets that lose no change.

Reading a key of `st.session_state` is a place where Streamlit turns to a rerun that waits, by an exception. In a
callback that would end it before it has done anything, and the change would be lost: the widget counts as having told
it. The state as a whole is read without that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st


def changed(key: str, store: Callable[[Any], object]) -> Callable[[], None]:
    """For `on_change`: gives `store` the widget's new value, whatever waits."""

    def change() -> None:
        store(st.session_state.to_dict()[key])

    return change
