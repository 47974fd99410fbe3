"""Where data comes from: this computer, the server, an object store or the hub."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from console.components.parts import problem
from console.held_uploads import MOST_HELD_MB, let_go
from console.services.uploads import OTHER_WAYS, Upload, Uploads
from mmrl.errors import MmrlError

_WAYS = {"computer": "From this computer", "server": "From the server", "address": "From a store or the hub"}
_ERROR = "adding_error"
_TAKEN = "uploads_taken"


def adding(uploads: Uploads, *, max_mb: int) -> None:
    """Takes data in; from then on its upload is in the address."""
    with st.container(border=True, key="add_data"):
        st.markdown("**Add data**")
        way = st.segmented_control(
            "Where it is",
            list(_WAYS),
            format_func=_WAYS.__getitem__,
            default="computer",
            key="way",
            required=True,
            label_visibility="collapsed",
        )
        if way == "computer":
            _from_computer(uploads, max_mb)
        elif way == "server":
            _from_server(uploads)
        else:
            _from_address(uploads)
        error = st.session_state.pop(_ERROR, None)
        if error:
            problem(error)


def _from_computer(uploads: Uploads, max_mb: int) -> None:
    """Once files are taken another uploader stands here: a browser that leaves the next page before it is drawn would
    show in the old one what is let go."""
    taken: list[str] = st.session_state.setdefault(_TAKEN, [])
    number = len(taken)
    with st.container(key="files"):
        files = st.file_uploader(
            "A table of rows (jsonl, json, csv, tsv, parquet, arrow), a zip or tar of a folder, or a table and its "
            "images",
            accept_multiple_files=True,
            max_upload_size=max_mb,
            key=f"files_{number}",
        )
    st.caption(
        f"Up to {max_mb} MB at a time. {OTHER_WAYS} If a file is refused on its way (error 413), a proxy between here "
        f"and the server allows less, or others upload much just now (the console holds {MOST_HELD_MB} MB at a time): "
        "nothing was added, and these ways are open."
    )

    def take() -> Upload:
        if len(taken) > number:  # a second click
            return uploads.get(taken[number])
        upload = uploads.add_files([(file.name, file) for file in files])
        taken.append(upload.id)
        let_go(f"files_{number}", files)
        return upload

    if files:
        st.button(
            "Check these files" if len(files) > 1 else "Check this file",
            key="check_files",
            type="primary",
            on_click=_take,
            args=(take,),
        )


def _from_server(uploads: Uploads) -> None:
    path = st.text_input("Path of a file or folder on the server", key="server_path", live=True, placeholder="/data/…")
    roots = ", ".join(map(str, uploads.data_roots))
    if roots:
        st.caption("Data may come from:")
        st.text(roots)
    else:
        st.caption("No folder is allowed yet. An admin names some as data_roots in MMRL_HOME/console.yaml.")
    st.button(
        "Check this path",
        key="check_path",
        type="primary",
        disabled=not path.strip(),
        on_click=_take,
        args=(lambda: uploads.add_server_path(path),),
    )


def _from_address(uploads: Uploads) -> None:
    address = st.text_input(
        "Address", key="address", live=True, placeholder="s3://bucket/data.zip or hf://owner/name@train"
    )
    st.caption("The server reads it with its own credentials, those of its environment.")
    st.button(
        "Check this address",
        key="check_address",
        type="primary",
        disabled=not address.strip(),
        on_click=_take,
        args=(lambda: uploads.add_address(address),),
    )


def _take(add: Callable[[], Upload]) -> None:
    try:
        st.query_params.from_dict({"upload": add().id})
    except MmrlError as error:
        st.session_state[_ERROR] = str(error)
