"""Export: what a page shows, as a file. It is made when asked for, and what it holds is said before it is taken."""

from __future__ import annotations

import streamlit as st

from console.components.parts import attempted
from console.components.text import literal
from console.services.exports import KINDS, Export, Exported, make
from console.services.formats import bytes_text, count_text

_MADE = "export-made"
"""Of a session's files the last one is kept, so that they do not pile up."""


def export_button(export: Export, *, key: str = "export") -> None:
    """key: another one where a page has several."""
    with st.popover("Export", key=key, disabled=not export.total):
        st.caption(literal(f"{export.title}: {count_text(export.total)} {'row' if export.total == 1 else 'rows'}"))
        kind = st.segmented_control(
            "As",
            list(KINDS),
            format_func=KINDS.__getitem__,
            default="html",
            required=True,
            key=f"{key}-kind",
            help="The report is one page with its images that opens without a network. CSV, Parquet and JSONL have a "
            "row for each of the rows.",
        )
        assert kind is not None
        stamp = f"{key} {kind} {export.stamp}"
        if st.button("Make the file", key=f"{key}-make"):
            with attempted(), st.spinner("Making it"):
                st.session_state[_MADE] = (stamp, make(export, kind))
        made = st.session_state.get(_MADE)
        if made is not None and made[0] == stamp:
            _offer(made[1], key)


def _offer(file: Exported, key: str) -> None:
    st.caption(literal(f"{file.told}, {bytes_text(len(file.data))}"))
    st.download_button(
        f"Download {literal(file.file_name)}",
        file.data,
        file_name=file.file_name,
        mime=file.mime,
        key=f"{key}-download",
        on_click="ignore",
        type="primary",
    )
