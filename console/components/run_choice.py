"""Which run a page is about: one of the newest, or whichever its address names."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import empty_state, problem
from mmrl.errors import NotFoundError
from mmrl.jobs.records import Job
from mmrl.jobs.searching import JobFilter

_MOST = 200


def run_choice(key: str, *, kinds: Sequence[str], forget: Sequence[str], none: tuple[str, str]) -> Job | None:
    """The run that the address names, which may be changed; None where it names none.

    forget: names of the address that are about another run. none: a title and a sentence for where there is no run.
    """
    jobs = context.jobs()
    runs = {job.id: job for job in jobs.search(JobFilter(kinds=tuple(kinds)), limit=_MOST)}
    asked = words().get("run", "")
    if asked and asked not in runs:
        try:
            named = jobs.get(asked)
            runs[named.id], asked = named, named.id
        except NotFoundError:
            problem(f"There is no run {asked}; choose another one.")
    if not runs:
        empty_state(*none)
        st.page_link("app_pages/new_run.py", label="New run")
        return None
    show_value(key, asked if asked in runs else None)
    st.selectbox(
        "Run",
        list(runs),
        format_func=lambda each: f"{runs[each].name} · {runs[each].state} · {runs[each].short_id}",
        key=key,
        placeholder="choose a run, the newest first",
        on_change=changed(key, lambda new: change(run=new, **dict.fromkeys(forget))),
    )
    chosen = st.session_state[key]
    return runs[chosen] if chosen else None
