"""The page Data sets: what there is, and data on its way in."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from console import context
from console.components.adding import adding
from console.components.dataset_rows import pager
from console.components.incoming import incoming
from console.components.parts import empty_state, part
from console.components.text import age, literal
from console.services.checking import Checking
from console.services.datasets import Catalogued, DatasetSummary
from console.services.formats import bytes_text, count_text
from console.services.uploads import Uploads
from console.settings import load_settings
from mmrl.errors import NotFoundError

_PAGE = 25
_WIDTHS = (4, 2, 2, 2, 2, 3, 2, 2)
_HEADS = ("Name", "Version", "Rows", "Images", "Size", "Owner", "Age", "State")
_STATES = {"valid": ("valid", "green"), "missing": ("files are gone", "red"), "damaged": ("damaged", "red")}


def show() -> None:
    settings = load_settings()
    viewer = context.viewer()
    uploads = Uploads(
        viewer,
        context.database().settings,
        max_bytes=settings.max_upload_mb * 1_000_000,
        data_roots=[Path(root) for root in settings.data_roots],
    )
    catalogued = Catalogued(context.catalogue(), viewer)
    checking = Checking(uploads, context.processes(), catalogued)
    upload_id = st.query_params.get("upload")
    if upload_id is not None:
        with part("this upload"):
            _one_upload(upload_id, uploads, checking, catalogued)
        return
    with part("uploads"):
        adding(uploads, max_mb=settings.max_upload_mb)
        _unfinished(uploads)
    with part("the data sets"):
        _list(catalogued)


def _one_upload(upload_id: str, uploads: Uploads, checking: Checking, catalogued: Catalogued) -> None:
    st.page_link("app_pages/datasets.py", label="All data sets")
    try:
        upload = uploads.get(upload_id)
    except NotFoundError as error:
        empty_state("Nothing waits here", str(error))
        return
    incoming(upload, uploads, checking, names=[each.name for each in catalogued.all()])


def _unfinished(uploads: Uploads) -> None:
    waiting = uploads.all()
    if not waiting:
        return
    st.caption("Uploaded and not registered yet:")
    with st.container(horizontal=True, key="unfinished"):
        for upload in waiting[:8]:
            st.page_link("app_pages/datasets.py", label=literal(upload.shown), query_params={"upload": upload.id})


def _list(catalogued: Catalogued) -> None:
    everything = catalogued.all()
    if not everything:
        empty_state(
            "No data set yet",
            "Add one above: rows of a question with its images and an answer, conversations, or pairs of a better and "
            "a worse answer. Every row is checked before anything is kept.",
        )
        return
    words = st.text_input("Find by name", key="words", live=True, bind="query-params", placeholder="part of a name")
    found = catalogued.all(words=words) if words else everything
    if not found:
        empty_state("No name holds this", f"There are {count_text(len(everything))} data sets; clear the search.")
        return
    start = pager("Data sets", key="page", total=len(found), size=_PAGE)
    with st.container(border=True, key="datasets", gap="xsmall"):
        with st.container(key="datasets_head"):
            for column, head in zip(st.columns(_WIDTHS, vertical_alignment="center"), _HEADS, strict=True):
                column.caption(head, text_alignment="right" if head in ("Rows", "Images", "Size") else "left")
        for each in found[start : start + _PAGE]:
            _line(each)


def _line(each: DatasetSummary) -> None:
    name, version, rows, images, size, owner, when, state = st.columns(_WIDTHS, vertical_alignment="center")
    with name:
        st.page_link("app_pages/dataset.py", label=literal(each.name), query_params={"name": each.name})
    version.caption(each.version[:8])
    rows.text(count_text(each.num_rows), width="stretch", text_alignment="right")
    images.text(count_text(each.num_images), width="stretch", text_alignment="right")
    size.text(bytes_text(each.num_bytes), width="stretch", text_alignment="right")
    owner.text(each.owner or "–")
    with when:
        age(each.created_at)
    label, colour = _STATES.get(each.state, (each.state, "gray"))
    state.badge(label, color=colour)  # type: ignore[arg-type]
    if each.skipped:
        state.caption(f"{count_text(each.skipped)} left out")


st.title("Data sets")
show()
