"""A choice that stays in the address, under the words that the address is written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from console.components.changes import changed


def choice_in_address(
    label: str,
    options: Sequence[str],
    *,
    key: str,
    default: str,
    format_func: Callable[[str], str],
    hides_label: bool = False,
) -> str:
    """Another choice begins with the first page of what it shows. Gives what is chosen."""
    asked = st.query_params.get(key)
    value = asked if asked is not None and asked in options else default
    if st.session_state.get(key) != value:
        st.session_state[key] = value

    def choose(new: str) -> None:
        st.query_params.pop("page", None)
        st.query_params[key] = new

    st.segmented_control(
        label,
        options,
        format_func=format_func,
        key=key,
        required=True,
        on_change=changed(key, choose),
        label_visibility="collapsed" if hides_label else "visible",
    )
    return value
