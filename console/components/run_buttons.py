"""Buttons that act on runs, and the dialogs that ask before something ends.

What is asked is kept with the ids of the runs, not with their places on the page, so a table that changes meanwhile
changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from console import context
from console.components.text import literal, state_badge
from console.services.run_actions import HELP, Action, Done, act_on_all
from console.services.runs import state_word
from mmrl.errors import MmrlError

LABELS = {
    Action.RESUME: "Resume",
    Action.PAUSE: "Pause",
    Action.STOP: "Stop",
    Action.KILL: "Kill",
    Action.RETRY: "Retry",
}
ASKS = frozenset({Action.STOP, Action.KILL, Action.RETRY})
"""Those that ask before they act."""
_ASKED, _TOLD = "run-asked", "run-told"


@dataclass(frozen=True)
class Asked:
    """What a dialog asks about. ids: of the runs, as they were chosen."""

    action: Action
    ids: tuple[str, ...]


def ask(action: Action, ids: Sequence[str]) -> None:
    """For a button's on_click: acts, or has the dialog opened at the next run of the page."""
    if action in ASKS:
        st.session_state[_ASKED] = Asked(action, tuple(ids))
    else:
        tell(act_on_all(context.jobs(), action, ids))


def is_asked() -> bool:
    """Whether a dialog waits to be opened, or something to be told: the whole page has to run for it."""
    return _ASKED in st.session_state or bool(st.session_state.get(_TOLD))


def open_asked() -> None:
    """Opens the dialog that was asked for. To be called by the page itself, outside of live parts."""
    asked = st.session_state.pop(_ASKED, None)
    if isinstance(asked, Asked):
        _dialog(asked)


def tell(done: Sequence[Done]) -> None:
    st.session_state[_TOLD] = [*st.session_state.get(_TOLD, ()), *done]


def show_told() -> None:
    """What came of the last actions, once. The place is always there, so that nothing below it moves."""
    with st.container(key="told"):
        for done in st.session_state.pop(_TOLD, ()):
            _told(done)


def _told(done: Done) -> None:
    with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"told-{done.job.id}"):
        st.text(("Not done: " if done.is_error else "") + done.text)
        if done.other is not None:
            label = literal(f"Open {done.other.name} {done.other.short_id}")
            st.page_link("app_pages/run.py", label=label, query_params={"id": done.other.id})


def _act(asked: Asked) -> None:
    tell(act_on_all(context.jobs(), asked.action, asked.ids))


def _dialog(asked: Asked) -> None:
    label = LABELS[asked.action]
    what = "this run" if len(asked.ids) == 1 else f"these {len(asked.ids)} runs"

    @st.dialog(f"{label} {what}?", width="medium")
    def confirm() -> None:
        st.text(HELP[asked.action])
        jobs = context.jobs()
        for job_id in asked.ids:
            with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"asked-{job_id}"):
                try:
                    job = jobs.get(job_id)
                except MmrlError as error:
                    st.text(str(error))
                    continue
                st.text(f"{job.name}  {job.short_id}")
                state_badge(state_word(job))
        with st.container(horizontal=True, horizontal_alignment="right"):
            if st.button("Leave as it is", key="asked-no"):
                st.rerun()
            if st.button(f"{label} {what}", key="asked-yes", type="primary", on_click=_act, args=(asked,)):
                st.rerun()

    confirm()
