"""Shared by the parts of the page Rewards: the text of rewards, and a command beside the console until it is over."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from console import context
from console.components.changes import changed
from console.components.parts import attempted, problem
from console.components.text import literal, shown
from console.services.formats import duration_text
from console.services.reward_work import RewardWork, What

_EVERY_S = 1.0


def work() -> RewardWork:
    return RewardWork(context.processes(), context.viewer(), context.database().settings)


def rewards_area(what: str, default: str, *, label: str = "Rewards, a list in YAML") -> str:
    """The text as it was typed last, else the default; it is kept with each change."""
    key = f"rewards-{what}"
    if key not in st.session_state:
        kept = work().text(what)
        st.session_state[key] = kept if kept is not None else default

    def keep(text: str) -> None:
        with attempted():
            work().keep(what, text)

    lines = str(st.session_state[key]).count("\n") + 1
    st.text_area(label, key=key, height=max(100, min(400, 26 * lines + 40)), on_change=changed(key, keep))
    return str(st.session_state[key])


def set_rewards(what: str, text: str, then: Callable[[], None] | None = None) -> None:
    """In place of what was typed; for `on_click`."""
    with attempted():
        work().keep(what, text)
        st.session_state[f"rewards-{what}"] = text
        if then is not None:
            then()


def task_view(what: What, stamp: str, view: Callable[[object], None]) -> None:
    """How the command stands; what came of it is shown by `view`. stamp: of what is asked on the page now."""
    task = work().get(what)
    if task is None:
        return
    if not task.is_over:
        _live(what)
        return
    if task.error is not None:
        problem(shown(task.error, most=4000))
        return
    if task.stamp != stamp:
        st.caption("This is of other settings than stand above now.")
    view(task.data)
    st.caption(f"Took {duration_text(task.seconds)}.")


def _live(what: What) -> None:
    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        task = work().get(what)
        if task is None or task.is_over:
            st.rerun()
        with st.container(border=True, key=f"task-{what}"):
            word = "Waits for a place" if task.state == "waiting" else "At work"
            st.text(f"{word} for {duration_text(task.seconds)} …")
            for line in task.progress[-1:]:
                st.caption(literal(line[-200:]))
            st.caption("You may leave this page; it goes on.")
            if st.button("Stop", key=f"stop-{what}"):
                work().stop(what)
                st.rerun()

    look()
