"""The page of one data set: its rows, images, statistics and versions, and what can be made of it."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components import check_report
from console.components.choice_in_address import choice_in_address
from console.components.dataset_rows import gallery, pager, row_card
from console.components.dataset_work import export, mix, split_in_two
from console.components.parts import empty_state, part, problem
from console.components.text import age, literal
from console.services.datasets import Catalogued, DatasetReads, DatasetSummary, DatasetWork
from console.services.formats import bytes_text, count_text, duration_text
from mmrl.errors import NotFoundError

_ROWS_A_PAGE = 10
_ROWS_OF_IMAGES = 48
_EVERY_S = 1.0
_VIEWS = {
    "rows": "Rows",
    "images": "Images",
    "statistics": "Statistics",
    "versions": "Versions",
    "make": "Split, mix, export",
}


def show() -> None:
    name, version = st.query_params.get("name"), st.query_params.get("version")
    st.page_link("app_pages/datasets.py", label="All data sets")
    if not name:
        st.title("Data set")
        empty_state("No data set is named", "Choose one from the list of all data sets.")
        return
    catalogued = Catalogued(context.catalogue(), context.viewer())
    try:
        versions = catalogued.versions(name)
        wanted = [each for each in versions if (each.version == version if version else each.is_current)]
        summary = (wanted or versions)[0]
    except NotFoundError as error:
        st.title(literal(name))
        problem(str(error))
        return
    if version and not wanted:
        problem(f"There is no version {version} of it; this is the current one.")
    _head(summary)
    with part("this data set"):
        _body(summary, versions, catalogued)


def _head(summary: DatasetSummary) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="dataset_head"):
        st.title(literal(summary.name))
        if summary.state != "valid":
            st.badge("files are gone", color="red")
        elif not summary.is_current:
            st.badge("an older version", color="orange")
        if summary.state == "valid":
            st.page_link("app_pages/new_run.py", label="New run with it", query_params={"data": summary.name})
    with st.container(horizontal=True, key="figures"):
        st.metric("Rows", count_text(summary.num_rows), border=True, help="Prompts of all splits together.")
        st.metric(
            "Images", count_text(summary.num_images), border=True, help="Images in rows; one may stand in several."
        )
        st.metric("Size", bytes_text(summary.num_bytes), border=True, help="Of the rows on disk, without their images.")
        st.metric("Left out", count_text(summary.skipped), border=True, help="Bad rows that were left out of it.")
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="origin"):
        by = f", by {literal(summary.owner)}" if summary.owner else ""
        st.caption(f"version {summary.version}{by}, from {literal(summary.source)}")
        age(summary.created_at)


def _body(summary: DatasetSummary, versions: list[DatasetSummary], catalogued: Catalogued) -> None:
    view = choice_in_address(
        "What to look at",
        list(_VIEWS),
        key="view",
        default="rows",
        format_func=_VIEWS.__getitem__,
        hides_label=True,
    )
    if view == "versions":
        _versions(versions)
        return
    if summary.state != "valid":
        problem(
            "The files of this version are gone, so its rows cannot be shown. Add the data again under this name; runs "
            "that used it keep the samples that they recorded."
        )
        return
    work = DatasetWork(context.processes(), context.catalogue(), context.viewer())
    if view == "statistics":
        _statistics(work, summary)
    elif view == "make":
        _make(work, summary, catalogued)
    else:
        _rows(summary, as_images=view == "images")


def _rows(summary: DatasetSummary, *, as_images: bool) -> None:
    names = [split.name for split in summary.splits]
    chosen = summary.split(None).name
    if len(names) > 1:
        sizes = {split.name: count_text(split.num_rows) for split in summary.splits}
        chosen = choice_in_address(
            "Split",
            names,
            key="split",
            default=chosen,
            format_func=lambda name: f"{literal(name)} · {sizes[name]}",
        )
    split = summary.split(chosen)
    reads = DatasetReads(context.catalogue().registry, summary)
    size = _ROWS_OF_IMAGES if as_images else _ROWS_A_PAGE
    start = pager("Rows", key="page", total=split.num_rows, size=size)
    if not as_images:
        for row in reads.rows(split.name, start=start, count=size):
            row_card(row)
        return
    pictures = reads.pictures(split.name, start=start, count=size)
    if pictures:
        gallery(pictures)
    else:
        empty_state("No images here", "These rows are text alone.")


def _statistics(work: DatasetWork, summary: DatasetSummary) -> None:
    task = work.statistics(summary)
    if task.is_over:
        if task.data is None:
            problem(task.error or "There are no statistics.")
            if st.button("Count again", key="count_again"):
                work.statistics_again(summary)
                st.rerun()
            return
        check_report.statistics(task.data["stats"])
        for text in task.data["warnings"]:
            st.text(f"•  {text}")
        return

    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        task = work.statistics(summary)
        if task.is_over:
            st.rerun()
        st.text(f"Counting for {duration_text(task.seconds)}…")

    look()


def _versions(versions: list[DatasetSummary]) -> None:
    st.write("A version never changes. A run keeps to the one that was current when it was submitted.")
    with st.container(border=True, key="versions", gap="xsmall"):
        for each in versions:
            version, rows, owner, when, state = st.columns([3, 2, 3, 2, 2], vertical_alignment="center")
            with version:
                where = {"name": each.name, "version": each.version}
                st.page_link("app_pages/dataset.py", label=each.version, query_params=where)
            rows.text(f"{count_text(each.num_rows)} rows")
            owner.text(each.owner or "–")
            with when:
                age(each.created_at)
            if each.state != "valid":
                state.badge("files are gone", color="red")
            elif each.is_current:
                state.badge("current", color="green")


def _make(work: DatasetWork, summary: DatasetSummary, catalogued: Catalogued) -> None:
    left, right = st.columns(2, gap="large")
    with left, st.container(border=True, key="make_split"):
        split_in_two(work, summary)
    with right:
        with st.container(border=True, key="make_mix"):
            mix(summary, [each.name for each in catalogued.all()])
        with st.container(border=True, key="make_export"):
            export(work, summary)


show()
