"""Data that is on its way in: its check, how its rows are read, and its registration."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from console.components import check_report
from console.components.changes import changed
from console.components.parts import part, problem
from console.components.text import literal
from console.services.checking import Checking, Report, as_shown
from console.services.formats import bytes_text, count_text, counted, duration_text
from console.services.processes import Task
from console.services.uploads import Upload, Uploads
from mmrl.data.benchmarks import BENCHMARKS
from mmrl.data.files import NAME_PATTERN
from mmrl.data.options import MAPPED_FIELDS

_EVERY_S = 1.0
_FIELD_HELP = {
    "prompt": "The question or instruction.",
    "messages": "A whole conversation, in place of a prompt.",
    "images": "One image or several: paths, or the images themselves.",
    "answer": "The reference answer, which rewards compare with.",
    "system": "A text that goes before the conversation.",
    "chosen": "The better answer of a pair.",
    "rejected": "The worse answer of a pair.",
    "completion": "An answer that was judged by itself.",
}


def incoming(upload: Upload, uploads: Uploads, checking: Checking, *, names: list[str]) -> None:
    """names: of the data sets that there are."""
    task = checking.registering(upload)
    if task is not None and not task.is_over:
        _wait("Registering", lambda: checking.registering(upload))
        return
    if task is not None and task.data is not None:
        name = checking.finish(upload, task)
        st.switch_page("app_pages/dataset.py", query_params={"name": name})
    _head(upload, checking)
    if task is not None and task.error is not None:
        problem(as_shown(task.error, upload, uploads))
    check = checking.check(upload)
    if not check.is_over:
        _wait("Reading every row", lambda: checking.check(upload))
        _reading(upload, uploads, columns=())
        return
    with part("the report"):
        _report(upload, uploads, checking, checking.report(upload, check), names)


def _head(upload: Upload, checking: Checking) -> None:
    size = f" · {bytes_text(upload.num_bytes)}" if upload.num_bytes is not None else ""
    with st.container(horizontal=True, vertical_alignment="center", key="incoming_head"):
        st.subheader(literal(upload.shown))
        st.caption(f"not registered yet{size}")
        if st.button("Throw away", key="discard", help="Forgets this upload. Nothing of it was registered."):
            checking.forget(upload)
            st.query_params.clear()
            st.rerun()


def _wait(what: str, ask: Callable[[], Task | None]) -> None:
    """What a process does, live; the page is drawn anew when it is over."""

    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        task = ask()
        if task is None or task.is_over:
            st.rerun()
        waiting = "waits for its turn" if task.state == "waiting" else f"{duration_text(task.seconds)} so far"
        with st.container(border=True, key="progress"):
            st.markdown(f"**{what}** · {waiting}")
            for line in task.progress[-2:]:
                st.text(line[-200:])
            st.caption("You may leave this page; the work goes on, and this address leads back to it.")

    look()


def _report(upload: Upload, uploads: Uploads, checking: Checking, report: Report, names: list[str]) -> None:
    check_report.verdict(report)
    if report.is_sound:
        _register(upload, uploads, checking, report, names)
    check_report.bad_rows(report)
    if not report.is_sound:
        _what_to_do(upload, uploads, checking, report, names)
    check_report.warnings(report)
    _reading(upload, uploads, columns=report.columns)
    if report.statistics and report.num_valid:
        st.subheader("What the good rows hold")
        check_report.statistics(report.statistics)


def _what_to_do(upload: Upload, uploads: Uploads, checking: Checking, report: Report, names: list[str]) -> None:
    st.subheader("What you can do")
    mend, again, keep = st.columns(3)
    with mend, st.container(border=True, height="stretch", key="do_mend"):
        st.markdown("**Mend it and upload again**")
        st.write("Put the rows right in your file as the table says. Nothing was registered so far.")
        if st.button("Upload the mended data", key="upload_again", type="primary"):
            checking.forget(upload)
            st.query_params.clear()
            st.rerun()
    with again, st.container(border=True, height="stretch", key="do_map"):
        st.markdown("**Say which column is which**")
        st.write("If the file is right but its columns have other names, set them below. It is checked again at once.")
    with keep, st.container(border=True, height="stretch", key="do_keep"):
        st.markdown("**Keep the good rows**")
        if not report.can_keep_good_rows:
            st.write("There is no good row to keep.")
            return
        st.write(f"Leaves {count_text(report.num_rows - report.num_valid)} out and registers the others.")
        _register(upload, uploads, checking, report, names, skip_bad=True)


def _register(
    upload: Upload, uploads: Uploads, checking: Checking, report: Report, names: list[str], *, skip_bad: bool = False
) -> None:
    key = f"dataset_name_{upload.id}"

    def rename(name: str) -> None:
        uploads.change(uploads.get(upload.id), name=name.strip())

    st.session_state.setdefault(key, upload.name)
    name = st.text_input(
        "Name of the data set",
        key=key,
        max_chars=100,
        live=True,
        on_change=changed(key, rename),
        help="Letters, digits, '.', '_' and '-'. A name that there is already gets a new version; the old one stays.",
    ).strip()
    is_name = bool(NAME_PATTERN.fullmatch(name))
    if name in names:
        st.caption(f"{literal(name)} is there already: this becomes its new version.")
    elif not is_name:
        st.caption("A name has letters, digits, '.', '_' and '-', and begins with a letter or digit.")

    def register() -> None:
        checking.register(uploads.change(upload, name=name), skip_bad=skip_bad)

    label = (
        f"Keep the {counted(report.num_valid, 'good row')}"
        if skip_bad
        else f"Register {counted(report.num_valid, 'row')}"
    )
    st.button(
        label, key="register", type="secondary" if skip_bad else "primary", disabled=not is_name, on_click=register
    )


def _reading(upload: Upload, uploads: Uploads, *, columns: tuple[str, ...]) -> None:
    """Which column is which, and the like. A change is kept and checked at once."""
    is_open = bool(upload.mapping or upload.images_first or upload.benchmark)
    with st.expander("How rows are read", expanded=is_open, key="reading"):
        st.write("Columns are recognised by their names. Where that fails, say here which column holds what.")
        _mapping(upload, uploads, columns)

        first, benchmark = f"images_first_{upload.id}", f"benchmark_{upload.id}"
        st.session_state.setdefault(first, upload.images_first)
        st.session_state.setdefault(benchmark, upload.benchmark)
        st.toggle(
            "Put images before the text where it does not say where they belong",
            key=first,
            on_change=changed(first, lambda new: uploads.change(uploads.get(upload.id), images_first=new)),
            help="A text says it by <image>. Without this, such rows are refused.",
        )
        st.selectbox(
            "These are the files of a public benchmark",
            [None, *BENCHMARKS],
            key=benchmark,
            on_change=changed(benchmark, lambda new: uploads.change(uploads.get(upload.id), benchmark=new)),
            format_func=lambda name: name or "no",
        )


def _mapping(upload: Upload, uploads: Uploads, columns: tuple[str, ...]) -> None:
    places = st.columns(4)
    for number, field in enumerate(MAPPED_FIELDS):
        key = f"map_{field}_{upload.id}"

        def change(chosen: str | None, field: str = field) -> None:
            kept = {name: column for name, column in uploads.get(upload.id).mapping.items() if name != field}
            uploads.change(uploads.get(upload.id), mapping=kept | ({field: chosen} if chosen else {}))

        options = dict.fromkeys([None, *columns, *([upload.mapping[field]] if field in upload.mapping else [])])
        st.session_state.setdefault(key, upload.mapping.get(field))
        with places[number % 4]:
            st.selectbox(
                field.capitalize(),
                list(options),
                key=key,
                on_change=changed(key, change),
                format_func=lambda name: "as recognised" if name is None else name,
                help=_FIELD_HELP[field],
            )
