"""What is said once, after the page has run anew: that something was done."""

from __future__ import annotations

import streamlit as st

_KEY = "said_once"


def say_once(text: str) -> None:
    """Told by `tell_once` of the next run of the page."""
    st.session_state[_KEY] = text


def tell_once() -> None:
    """Called by a page, outside of its live parts."""
    text = st.session_state.pop(_KEY, None)
    if text is not None:
        st.toast(text)
