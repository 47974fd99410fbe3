"""The parts of the page Settings that show facts: name, value, and what it means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from console.services.formats import bytes_text
from console.services.installation import Fact, Storage, TrackerFact


def facts(rows: Iterable[Fact], *, key: str) -> None:
    """As a table; nothing in it is read as Markdown."""
    shown = [{"Name": fact.name, "Value": fact.value, "Meaning": fact.meaning} for fact in rows]
    st.dataframe(shown, hide_index=True, key=key, column_config=_columns())


def tracker_facts(rows: Iterable[TrackerFact]) -> None:
    shown = [
        {"Name": each.name, "Goes to": each.value, "Ready": "yes" if each.is_ready else "no", "Meaning": each.meaning}
        for each in rows
    ]
    st.dataframe(shown, hide_index=True, key="trackers", column_config=_columns())


def storage_figures(storage: Storage) -> None:
    tiles = [
        ("Data sets", bytes_text(storage.dataset_bytes), "All versions in the catalogue, without their images."),
        ("Checkpoints", bytes_text(storage.checkpoint_bytes), "All complete ones in the index."),
        ("Free disk", bytes_text(storage.free_bytes), "On the disk that holds mmrl's home."),
        ("Disk", bytes_text(storage.disk_bytes), "Size of that disk."),
    ]
    with st.container(horizontal=True, key="figures"):
        for label, value, meaning in tiles:
            st.metric(label, value, help=meaning, border=True)
    st.text(f"mmrl's home is {storage.home}")


def _columns() -> dict[str, Any]:
    return {
        "Name": st.column_config.TextColumn(width="small"),
        "Value": st.column_config.TextColumn(width="medium"),
        "Goes to": st.column_config.TextColumn(width="medium"),
        "Ready": st.column_config.TextColumn(width="small"),
        "Meaning": st.column_config.TextColumn(width="large"),
    }
