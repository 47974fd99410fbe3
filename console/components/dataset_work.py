"""What can be made of a data set: two parts of it, a mix with others, an export."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import streamlit as st

from console.components.parts import problem
from console.components.text import literal
from console.services.datasets import DatasetSummary, DatasetWork, export_folder
from console.services.formats import bytes_text, count_text, duration_text
from console.services.processes import Task
from mmrl.errors import MmrlError

_EVERY_S = 1.0
_MAX_DOWNLOAD_BYTES = 200_000_000
_ERROR = "dataset_work_error"


def split_in_two(work: DatasetWork, summary: DatasetSummary) -> None:
    """A part to train on and a part that is held out."""
    st.markdown("**Split in two**")
    st.write(
        "Makes two new data sets: one to train on, one held out to measure with. Rows that share a prompt or an image "
        "stay on one side, so that nothing that is measured was seen in training."
    )
    first, second, third = st.columns(3)
    split = first.selectbox("Split", [split.name for split in summary.splits], key="divide_split")
    share = second.slider("Held out", 1, 50, 10, format="%d %%", key="divide_share", help="Share of the rows.")
    seed = third.number_input("Seed", 0, None, 0, key="divide_seed", help="Another seed holds out other rows.")
    left, right = st.columns(2)
    rest = left.text_input("Name of what stays", f"{summary.name}-rest", key="divide_rest")
    held = right.text_input("Name of what is held out", f"{summary.name}-heldout", key="divide_held")

    def divide() -> None:
        try:
            work.divide(summary, split=split, share=share / 100, seed=int(seed), into=(rest.strip(), held.strip()))
        except MmrlError as error:
            st.session_state[_ERROR] = str(error)

    st.button("Split", key="divide", type="primary", on_click=divide, disabled=not summary.is_current)
    _tell_error()
    _live("divide", lambda: work.divided(summary), _divided)


def mix(summary: DatasetSummary, names: list[str]) -> None:
    """Several data sets that one run draws from; that is a matter of the run."""
    st.markdown("**Mix with others**")
    st.write(
        "A run can draw from several data sets, each with a weight. Nothing is copied: the mix is written in the run."
    )
    others = st.multiselect("Together with", [name for name in names if name != summary.name], key="mix_with")
    chosen = ",".join([summary.name, *others])
    st.page_link("app_pages/new_run.py", label="New run with this mix", query_params={"data": chosen})


def export(work: DatasetWork, summary: DatasetSummary) -> None:
    """jsonl files and images that read back to the same rows."""
    st.markdown("**Export**")
    st.write("Writes the rows as jsonl with their images, as `mmrl dataset export` does, in a folder of the server.")

    def begin() -> None:
        try:
            work.export(summary)
        except MmrlError as error:
            st.session_state[_ERROR] = str(error)

    st.button("Export", key="export", on_click=begin, disabled=not summary.is_current)
    _tell_error()
    _live("export", lambda: work.exported(summary), lambda task: _exported(summary))


def _live(what: str, ask: object, done: object) -> None:
    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        task: Task | None = ask()  # type: ignore[operator]
        if task is None:
            return
        if not task.is_over:
            st.text(f"Working for {duration_text(task.seconds)}…")
        elif task.error is not None:
            problem(task.error)
        else:
            done(task)  # type: ignore[operator]

    with st.container(key=f"{what}_state"):
        look()


def _divided(task: Task) -> None:
    st.success("Two new data sets are there:")
    for info in task.data.values():
        label = f"{literal(info['name'])} · {count_text(info['num_rows'])} rows"
        st.page_link("app_pages/dataset.py", label=label, query_params={"name": info["name"]})


def _exported(summary: DatasetSummary) -> None:
    folder = export_folder(summary)
    st.text("Written to the server's folder")
    st.code(str(folder), language=None)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > _MAX_DOWNLOAD_BYTES:
        st.caption(f"It has {bytes_text(size)}, too much for a browser; copy it from there.")
        return
    st.download_button(
        f"Download as zip ({bytes_text(size)})",
        lambda: _zipped(folder),
        file_name=f"{summary.name}-{summary.version}.zip",
        mime="application/zip",
        on_click="ignore",
        key="download_export",
    )


def _zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder))
    return buffer.getvalue()


def _tell_error() -> None:
    error = st.session_state.pop(_ERROR, None)
    if error:
        problem(error)
