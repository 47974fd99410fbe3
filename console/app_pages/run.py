"""The page Run: one run, live while it goes on; a finished one is read once."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from console import context
from console.components import run_head
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import empty_state, part
from console.components.run_buttons import is_asked, open_asked, show_told
from console.components.run_checkpoints import checkpoints
from console.components.run_config import config
from console.components.run_curves import curves
from console.components.run_log import log
from console.components.run_story import events, family, machine, samples
from console.services.run_detail import RunHead
from console.services.run_detail import run_head as read_head
from mmrl.errors import NotFoundError
from mmrl.jobs.records import Job

_EVERY_S = 2
_PARTS_EVERY_S = 3
_TABS = ("Curves", "Log", "History", "Checkpoints", "Samples", "Config", "Lineage", "Hardware")
_LIVE = frozenset({"Curves", "History", "Checkpoints", "Samples", "Hardware"})
"""Tabs that are drawn anew while the run goes on; the log does that by itself."""


def page() -> None:
    ref = words().get("id")
    if not ref:
        st.title("Run")
        empty_state("No run is named", "Choose one on the page Runs.")
        st.page_link("app_pages/runs.py", label="Runs")
        return
    try:
        head = read_head(context.jobs(), ref, context.viewer())
    except NotFoundError:
        st.title("Run")
        empty_state("There is no such run", "Its address may be cut short, or it may be of another database.")
        st.page_link("app_pages/runs.py", label="Runs")
        return
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        run_head.title(head)
        run_head.notes(head, context.jobs().choices().tags)
    run_head.note(head)
    show_told()
    open_asked()
    every = None if head.job.is_terminal else _EVERY_S
    st.fragment(_status, run_every=every)(head.job.id, (head.state, head.job.attempt))
    _tab(head)


def _status(job_id: str, seen: tuple[str, int]) -> None:
    """seen: state and attempt when the page was last drawn as a whole. With others it is drawn anew: a run that has
    ended is asked no more, and one that was resumed has other logs."""
    if is_asked():
        st.rerun()
    with part("this run"):
        head = read_head(context.jobs(), job_id, context.viewer())
        if (head.state, head.job.attempt) != seen:
            st.rerun()
        run_head.status(head)
        run_head.actions(head)


def _tab(head: RunHead) -> None:
    given = words().get("tab", "").capitalize()
    tab = given if given in _TABS else _TABS[0]
    show_value("run-tab", tab)
    st.segmented_control(
        "Part",
        _TABS,
        key="run-tab",
        required=True,
        on_change=changed("run-tab", _tab_changed),
        label_visibility="collapsed",
    )
    is_live = tab in _LIVE and not head.job.is_terminal
    st.fragment(_show, run_every=_PARTS_EVERY_S if is_live else None)(tab, head.job.id, may_act=head.may_act)


def _show(tab: str, job_id: str, *, may_act: bool) -> None:
    if is_asked():
        st.rerun()
    with part(f"the part {tab}"):
        job = context.jobs().get(job_id)
        if tab == "Checkpoints":
            checkpoints(job, may_act=may_act)
            return
        parts: dict[str, Callable[[Job], None]] = {
            "Curves": lambda each: curves(context.jobs(), [each]),
            "Log": log,
            "History": events,
            "Samples": samples,
            "Config": config,
            "Lineage": family,
            "Hardware": machine,
        }
        parts[tab](job)


def _tab_changed(tab: str | None) -> None:
    change(tab=None if tab in (None, _TABS[0]) else str(tab).lower(), end=None, find=None)


page()
