"""The table of runs: a line each, chosen by its id, and what can be done with those that are chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import streamlit as st

from console import context
from console.components.address import run_query, set_run_query, show_value
from console.components.changes import changed
from console.components.parts import empty_state
from console.components.run_buttons import ASKS, LABELS, ask
from console.components.text import age, job_link, literal, state_badge
from console.services.formats import count_text, duration_text
from console.services.run_actions import HELP, Action
from console.services.runs import MAX_COMPARED, PAGE_SIZE, RunLine, RunQuery, RunsPage, runs_page

_WIDTHS = (0.35, 4.2, 1.3, 2.6, 1.6)
_LONGEST_WHY = 220


def table(owners: dict[str, str]) -> None:
    """Reads the address anew each time: that is where the choice lies."""
    query = run_query()
    page = runs_page(context.jobs(), query, owners=owners)
    if not page.num_fitting:
        _nothing(query)
        return
    _chosen_bar(query)
    _head(page)
    for line in page.lines:
        _line(line, page, query)
    _pager(page)


def _nothing(query: RunQuery) -> None:
    if query.is_filtered:
        empty_state("No run fits", "Take out a filter, or look for other words.")
        st.button("All runs", key="runs-all", on_click=lambda: set_run_query(RunQuery(picked=query.picked)))
        return
    empty_state("No runs yet", "Choose a goal, a model and data, and launch the first one.")
    st.page_link("app_pages/new_run.py", label="New run")


def _head(page: RunsPage) -> None:
    with st.container(key="runs-head"):
        for column, text in zip(
            st.columns(_WIDTHS, vertical_alignment="center"),
            ("", "Run", "State", "Progress", "Owner and age"),
            strict=True,
        ):
            column.caption(text or "​")


def _line(line: RunLine, page: RunsPage, query: RunQuery) -> None:
    job = line.job
    with st.container(key=f"runrow-{job.id}", gap="xsmall"):
        pick, name, state, progress, owner = st.columns(_WIDTHS, vertical_alignment="center")
        with pick:
            key = f"pick-{job.id}"
            show_value(key, job.id in query.picked)
            st.checkbox(
                literal(f"Choose {job.name} {job.short_id}"),
                key=key,
                on_change=changed(key, partial(_pick, job.id)),
                label_visibility="collapsed",
            )
        with name, st.container(gap=None):
            job_link(job)
            words = [job.kind, job.short_id, *(f"#{tag}" for tag in job.tags)]
            st.caption(literal(" · ".join(words)))
            if line.why:
                st.caption(literal(_cut(line.why)))
        with state:
            state_badge(line.state)
        with progress:
            _progress(line)
        with owner, st.container(gap=None):
            age(job.finished_at or job.started_at or job.created_at, now=page.now, before=f"{line.owner} ·")


def _progress(line: RunLine) -> None:
    job, pace = line.job, line.pace
    if not job.total_steps:
        return
    told = [f"{count_text(job.step)} of {count_text(job.total_steps)}"]
    told += [f"{duration_text(pace.left_s)} left"] if pace.left_s is not None else []
    if job.is_held:
        st.progress(min(1.0, job.step / job.total_steps), text=" · ".join(told))
    else:
        st.caption(" · ".join(told))


def _chosen_bar(query: RunQuery) -> None:
    """What can be done with the chosen runs, wherever in the table they are."""
    ids = query.picked
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="runs-chosen"):
        if not ids:
            st.caption(f"Choose runs to stop, resume or compare them, up to {MAX_COMPARED} side by side.")
            return
        st.text(f"{len(ids)} chosen")
        st.button(
            "Compare",
            key="chosen-compare",
            type="primary",
            disabled=not 2 <= len(ids) <= MAX_COMPARED,
            help=f"Curves, settings that differ and final metrics of 2 to {MAX_COMPARED} runs.",
            on_click=lambda: set_run_query(replace(query, compared=ids)),
        )
        for action in Action:
            dots = "…" if action in ASKS else ""
            st.button(
                LABELS[action] + dots, key=f"chosen-{action}", help=HELP[action], on_click=ask, args=(action, ids)
            )
        if len(ids) == 1:
            st.page_link(
                "app_pages/new_run.py", label="Clone", query_params={"from": ids[0]}, help="A new run with its settings"
            )
        st.button("Choose none", key="chosen-none", on_click=lambda: set_run_query(replace(query, picked=())))


def _pager(page: RunsPage) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="runs-pager"):
        st.caption(f"{count_text(page.num_fitting)} runs, {PAGE_SIZE} on a page")
        _turn("Newer", page.newer)
        _turn("Older", page.older)


def _turn(label: str, query: RunQuery | None) -> None:
    st.button(
        label,
        key=f"runs-{label.lower()}",
        disabled=query is None,
        on_click=lambda: None if query is None else set_run_query(query),
    )


def _pick(job_id: str, is_chosen: bool) -> None:
    """Of the id, whatever the table shows by now."""
    query = run_query()
    others = tuple(each for each in query.picked if each != job_id)
    set_run_query(replace(query, picked=(*others, job_id) if is_chosen else others))


def _cut(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _LONGEST_WHY else f"{one_line[: _LONGEST_WHY - 1]}…"
