"""Small tables of numbers, looked at rather than worked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st


def number_table(rows: Sequence[Mapping[str, str]], *, key: str) -> None:
    """A small table whose first column is words and whose others are numbers, as text, to the right."""
    with st.container(key=f"numbers-{key}"):
        st.table(list(rows), border="horizontal")
