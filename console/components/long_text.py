"""Texts of models and data, however long, whatever is in them: as they stand, cut, and whole when asked for."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mmrl.runs.inert import inert

MAX_WHOLE = 2_000_000
"""Characters that a browser is given at most."""
_MAX_LINES = 120
_WHOLE_HEIGHT = 480
_STYLE = "<style>.stApp [data-testid=stText]{unicode-bidi:plaintext;overflow-wrap:anywhere}</style>"
"""Each line goes the way of its own script, and a word without an end is broken."""


def text_style() -> None:
    """Once a page, before its texts."""
    st.html(_STYLE)


def model_text(text: str, *, key: str, limit: int = 6_000, empty: str = "(empty)") -> None:
    """As plain text, never as markup. Beyond `limit` characters or some lines it is cut, and a button shows all."""
    beginning = cut(text, limit)
    if len(beginning) == len(text):
        st.text(inert(text) or empty)
        return
    is_whole = bool(st.session_state.get(f"{key}-is-whole"))
    if is_whole:
        st.code(inert(text[:MAX_WHOLE]), language=None, wrap_lines=True, height=_WHOLE_HEIGHT)
        if len(text) > MAX_WHOLE:
            st.caption(f"The first {MAX_WHOLE:,} of {len(text):,} characters. An export as JSONL has them all.")
    else:
        st.text(f"{inert(beginning)}…")
    label = "Show less" if is_whole else f"Show all {len(text):,} characters"
    st.button(label, key=f"{key}-whole", type="tertiary", on_click=partial(_turn, f"{key}-is-whole", not is_whole))


def cut(text: str, limit: int) -> str:
    """The beginning of a text, within so many characters and a page of lines."""
    beginning = text[:limit]
    lines = beginning.split("\n", _MAX_LINES)
    return "\n".join(lines[:_MAX_LINES]) if len(lines) > _MAX_LINES else beginning


def _turn(key: str, is_whole: bool) -> None:
    st.session_state[key] = is_whole
