"""The parts of the page Settings that show facts: name, value, and what it means."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from console.components.text import literal
from console.services.formats import bytes_text
from console.services.installation import Fact, Storage, TrackerFact


def facts(rows: Iterable[Fact], *, key: str) -> None:
    """One below the other; side by side where there is room."""
    with st.container(border=True, key=key, gap="xsmall"):
        for fact in rows:
            name, value, meaning = st.columns([2, 3, 5], vertical_alignment="center")
            name.markdown(f"**{literal(fact.name)}**")
            value.text(fact.value)
            meaning.caption(fact.meaning)


def tracker_facts(rows: Iterable[TrackerFact]) -> None:
    shown = [Fact(each.name, each.value, f"{'' if each.is_ready else 'Not ready. '}{each.meaning}") for each in rows]
    facts(shown, key="trackers")


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
