"""A prompt and answers without a name, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from console.services.label_items import Item
from mmrl.runs.inert import inert

_MAX_SHOWN = 20_000
_IN_A_ROW = 3
SIDES = ("Left", "Right")


def item_view(
    item: Item,
    shown: Sequence[int],
    image: Callable[[str], Path | None],
    *,
    notes: Sequence[str] = (),
    key: str = "label",
) -> None:
    """shown: places of the answers from left to right. notes: what stands beside each one's title, such as its rank."""
    about, answers = st.columns([2, 6], gap="medium")
    with about:
        _prompt(item, image, key)
    titles = SIDES if len(shown) == 2 else [f"Answer {number}" for number in range(1, len(shown) + 1)]
    with answers:
        for start in range(0, len(shown), _IN_A_ROW):
            row = range(start, min(start + _IN_A_ROW, len(shown)))
            columns = st.columns(len(row) if start == 0 else _IN_A_ROW, gap="small")
            for column, place in zip(columns, row, strict=False):
                with column, st.container(border=True, key=f"{key}-answer-{titles[place].lower().replace(' ', '-')}"):
                    note = notes[place] if place < len(notes) else ""
                    st.caption(f"{titles[place]} · {note}" if note else titles[place])
                    st.text(shown_text(item.candidates[shown[place]].text) or "(empty)")


def shown_text(text: str) -> str:
    """Safe to show, and no longer than a page can hold."""
    safe = inert(text)
    return safe if len(safe) <= _MAX_SHOWN else f"{safe[:_MAX_SHOWN]}… ({len(safe):,} characters)"


def _prompt(item: Item, image: Callable[[str], Path | None], key: str) -> None:
    for number, each in enumerate(item.prompt.images, start=1):
        path = image(each.sha256)
        if path is None:
            st.text(f"image {number} is gone")
        else:
            st.image(str(path), alt=f"image {number} of the prompt", width="stretch")
    for message in item.prompt.messages:
        st.text(shown_text(message.text) or f"({message.role}: no text)")
    if item.prompt.answer is not None:
        with st.popover("Reference answer", key=f"{key}-reference", type="tertiary"):
            st.text(shown_text(item.prompt.answer))
