"""A prompt and answers without a name, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from console.components.long_text import model_text, text_style
from console.services.label_drawing import Item

_MAX_SHOWN = 20_000
"""Characters of a text before all of it must be asked for."""
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
    text_style()
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
                    text = item.candidates[shown[place]].text
                    model_text(text, key=f"{key}-{item.key[:12]}-text-{place}", limit=_MAX_SHOWN)


def _prompt(item: Item, image: Callable[[str], Path | None], key: str) -> None:
    for number, each in enumerate(item.prompt.images, start=1):
        path = image(each.sha256)
        if path is None:
            st.text(f"image {number} is gone")
        else:
            st.image(str(path), alt=f"image {number} of the prompt", width="stretch")
    own = f"{key}-{item.key[:12]}"
    for number, message in enumerate(item.prompt.messages):
        empty = f"({message.role}: no text)"
        model_text(message.text, key=f"{own}-message-{number}", limit=_MAX_SHOWN, empty=empty)
    if item.prompt.answer is not None:
        with st.popover("Reference answer", key=f"{key}-reference", type="tertiary"):
            model_text(item.prompt.answer, key=f"{own}-reference", limit=_MAX_SHOWN)
