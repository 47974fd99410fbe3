"""The order of a group that is being ranked, as far as it is known: beside each answer, and as a strip."""

from __future__ import annotations

import streamlit as st

from console.components.label_keys import Judging

_ENDS = {1: "st", 2: "nd", 3: "rd"}


def order_strip(judging: Judging) -> None:
    """A box a place, from the best on; places that are still open say so, the next one in words. Nothing for a pair."""
    if judging.is_pair:
        return
    levels = [[judging.shown.index(answer) + 1 for answer in level] for level in judging.begun.placed]
    open_places = ["which one?", *["–"] * len(judging.shown)][: len(judging.shown) - sum(map(len, levels))]
    texts = ["Answer " + " = ".join(map(str, sorted(level))) for level in levels]
    if texts and st.session_state.get(judging.key("beside")):
        texts[-1] += " = which one?"
        open_places = open_places[1:]
    with st.container(horizontal=True, gap="small", key="label-order"):
        for place, text in enumerate([*texts, *open_places], start=1):
            _box(place, text)


def place_notes(judging: Judging) -> list[str]:
    """Beside each answer as shown, its place so far."""
    ranks = {answer: rank for rank, level in enumerate(judging.begun.placed, start=1) for answer in level}
    return [ordinal(ranks[answer]) if answer in ranks else "" for answer in judging.shown]


def ordinal(place: int) -> str:
    """1 as `1st`; for places of a few."""
    return f"{place}{_ENDS.get(place, 'th')}"


def _box(place: int, text: str) -> None:
    with st.container(border=True, width="content", gap=None, key=f"label-order-{place}"):
        st.markdown(f"**{ordinal(place)}** {text}")
