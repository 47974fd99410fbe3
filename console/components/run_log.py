"""The log of a run: its last lines, which go on by themselves, earlier ones, and a search from the end."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import empty_state, part
from console.components.text import literal
from console.services import logs
from console.services.formats import bytes_text
from mmrl.jobs.records import Job
from mmrl.runs.logs import LogFile, LogPiece

_HEIGHT = 480
_EVERY_S = 2
_MANY_LINES = 20


def log(job: Job) -> None:
    with part("the log"):
        files = logs.logs_of(context.jobs(), job)
        if not files:
            if job.is_terminal:
                empty_state("No log", "The run ended before it wrote anything.")
            else:
                empty_state("No log yet", "The run has not started. What it writes appears here as it comes.")
                st.fragment(_wait_for_log, run_every=_EVERY_S)(job.id)
            return
        file = _choose(files)
        needle = words().get("find", "")
        if needle:
            _found(file, needle)
            return
        end = _number(words().get("end"))
        follows = end is None and not job.is_terminal
        st.fragment(_tail, run_every=_EVERY_S if follows else None)(job.id, file.attempt, file.name, end)


def _wait_for_log(job_id: str) -> None:
    with part("the log"):
        if logs.logs_of(context.jobs(), context.jobs().get(job_id)):
            st.rerun()


def _choose(files: list[LogFile]) -> LogFile:
    given = words()
    file = logs.chosen(files, _number(given.get("attempt")), given.get("file"))
    assert file is not None
    attempts = list(dict.fromkeys(each.attempt for each in files))
    names = [each.name for each in files if each.attempt == file.attempt]
    show_value("log-attempt", file.attempt)
    show_value("log-file", file.name)
    show_value("log-find", given.get("find", ""))
    with st.container(horizontal=True, vertical_alignment="bottom", key="log-choice"):
        st.selectbox(
            "Attempt",
            attempts,
            key="log-attempt",
            on_change=changed("log-attempt", lambda new: change(attempt=str(new), end=None)),
            width=110,
        )
        st.selectbox(
            "File",
            names,
            key="log-file",
            on_change=changed("log-file", lambda new: change(file=new, end=None)),
            width=240,
        )
        st.text_input(
            "Search",
            key="log-find",
            placeholder="text in a line",
            help="Lines that hold it, from the end backwards; capitals do not matter.",
            on_change=changed("log-find", lambda new: change(find=new.strip(), end=None)),
            width=320,
        )
    return file


def _tail(job_id: str, attempt: int, name: str, end: int | None) -> None:
    """Found anew each time: a run may have got another attempt, or lost its folder."""
    with part("the log"):
        job = context.jobs().get(job_id)
        file = logs.chosen(logs.logs_of(context.jobs(), job), attempt, name)
        if file is None:
            st.text("The log is gone.")
            return
        piece = logs.tail(file, end=end)
        _show(piece)
        with st.container(horizontal=True, vertical_alignment="center", key="log-turn"):
            _turn("Earlier", piece.start or None, is_open=piece.start > 0)
            _turn("To the end", None, is_open=end is not None)
            st.caption(_place(piece, follows=end is None and not job.is_terminal))


def _show(piece: LogPiece) -> None:
    text = logs.shown(piece.text)
    is_long = text.count("\n") > _MANY_LINES or len(text) > _MANY_LINES * 100
    with st.container(height=_HEIGHT if is_long else "content", key="log-text", border=False, autoscroll=is_long):
        st.code(text or "(nothing is written here yet)", language=None, wrap_lines=True)


def _place(piece: LogPiece, *, follows: bool) -> str:
    where = f"{bytes_text(piece.end - piece.start)} of {bytes_text(piece.num_bytes)}"
    return where + (", followed as it grows" if follows else f", up to byte {piece.end:,}")


def _turn(label: str, end: int | None, *, is_open: bool) -> None:
    st.button(
        label,
        key=f"log-{label.split()[0].lower()}",
        disabled=not is_open,
        on_click=lambda: change(end=None if end is None else str(end)),
    )
    if is_open and st.session_state.get(f"log-{label.split()[0].lower()}"):
        st.rerun()


def _found(file: LogFile, needle: str) -> None:
    result = logs.search(file, needle)
    told = f"{len(result.matches)} lines hold it, the last one first"
    if result.searched_from > 0:
        told += f"; nothing before byte {result.searched_from:,} was looked at"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(told)
        st.button("Whole log", key="log-whole", on_click=lambda: change(find=None, end=None))
    if not result.matches:
        st.text(f"No line of {file.name} holds “{needle}”.")
        return
    with st.container(height=_HEIGHT, key="log-matches"):
        for match in result.matches:
            with st.container(horizontal=True, vertical_alignment="top", gap="small", key=f"match-{match.offset}"):
                st.button(
                    literal(f"{match.offset:,}"),
                    key=f"open-{match.offset}",
                    type="tertiary",
                    help="The log up to a little after this line.",
                    on_click=_open_match,
                    args=(file, match.offset),
                )
                st.text(logs.shown(match.line))


def _open_match(file: LogFile, offset: int) -> None:
    change(find=None, end=str(min(file.num_bytes, logs.piece_at(file, offset).start + 4000)))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
