"""A choice that stays in the address, under the words that the address is written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from console.components.address import change, show_value, words
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
    asked = words().get(key)
    value = asked if asked is not None and asked in options else default
    show_value(key, value)

    def choose(new: str) -> None:
        change(**{key: new, "page": None})

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
