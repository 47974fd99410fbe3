"""Rows and images of a data set. Their text came from outside and is shown as it stands."""

from __future__ import annotations

import json
from collections.abc import Sequence

import streamlit as st

from console.components.address import change, words
from console.services.datasets import Picture, RowView
from console.services.formats import count_text

_COLUMNS = 8
_MAX_SHOWN = 4000


def row_card(row: RowView) -> None:
    """Messages as plain text, images beside them, the answer below."""
    with st.container(border=True, key=f"row_{row.number}", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", key=f"head_{row.number}"):
            st.caption(f"Row {count_text(row.number + 1)}", help=f"Its id, by which samples name it: {row.id}")
            if row.meta:
                with st.popover("What else it holds", key=f"meta_{row.number}", type="tertiary"):
                    st.code(_short(json.dumps(dict(row.meta), ensure_ascii=False, indent=1)), language=None)
        pictures, words = st.columns([1, 4], gap="medium") if row.pictures else (None, st.container())
        if pictures is not None:
            with pictures:
                for number, picture in enumerate(row.pictures, start=1):
                    picture_of(picture, caption=f"image {number}")
        with words, st.container(gap="xsmall", key=f"words_{row.number}"):
            for role, text in row.turns:
                st.caption(role)
                st.text(_short(text) or "(no text)")
            _answer(row)


def gallery(pictures: Sequence[Picture]) -> None:
    """Thumbnails in a grid, each with its row."""
    for start in range(0, len(pictures), _COLUMNS):
        for column, picture in zip(st.columns(_COLUMNS), pictures[start : start + _COLUMNS], strict=False):
            with column:
                picture_of(picture, caption=f"row {picture.row + 1}")


def picture_of(picture: Picture, *, caption: str) -> None:
    if picture.thumbnail is None:
        st.text(f"{caption}: the image is gone")
        return
    size = f"{picture.image.width} × {picture.image.height} pixels"
    st.image(str(picture.thumbnail), caption=f"{caption} · {size}", alt=f"{caption}, {size}")


def pager(label: str, *, key: str, total: int, size: int) -> int:
    """Where the page begins (from 0), chosen among pages of `size`; it stays in the address under `key`."""
    pages = max(1, -(-total // size))
    try:
        wanted = int(words().get(key, "1"))
    except ValueError:
        wanted = 1
    page = min(max(wanted, 1), pages)
    if pages > 1:
        with st.container(horizontal=True, vertical_alignment="center", key=f"pager_{key}"):
            _turn("Earlier", key, page - 1, is_off=page == 1)
            last = min(total, page * size)
            st.caption(f"{label} {count_text((page - 1) * size + 1)} to {count_text(last)} of {count_text(total)}")
            _turn("Later", key, page + 1, is_off=page == pages)
    return (page - 1) * size


def _turn(label: str, key: str, page: int, *, is_off: bool) -> None:
    def turn() -> None:
        change(**{key: str(page)})

    st.button(label, key=f"{key}_{label.lower()}", on_click=turn, disabled=is_off)


def _answer(row: RowView) -> None:
    if row.answer is not None:
        st.caption("answer")
        st.text(_short(row.answer) or "(empty)")
    elif not any(name in row.meta for name in ("chosen", "completion")):
        st.caption("no reference answer")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"
