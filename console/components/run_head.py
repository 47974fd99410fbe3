"""What stands above a run's parts: its name, where it is, how far, why not further, and what can be done with it."""

from __future__ import annotations

import streamlit as st

from console.components.run_buttons import ASKS, LABELS, ask
from console.components.run_notes import edit_notes, show_tags
from console.components.text import age, literal, state_badge
from console.services.formats import count_text, duration_text
from console.services.run_actions import HELP, Action
from console.services.run_detail import RunHead


def title(head: RunHead) -> None:
    st.title(literal(head.job.name), anchor=False, width="content")


def status(head: RunHead) -> None:
    """The live part: state, age, progress, cause."""
    job = head.job
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="run-status"):
        state_badge(head.state)
        age(job.finished_at or job.started_at or job.created_at, now=head.now, before=_since(head))
        st.caption(
            literal(" · ".join(_facts(head))),
            width="content",
        )
    _progress(head)
    if head.why:
        with st.container(border=True, key="run-why", gap="xsmall"):
            label = {"queued": "Why it waits", "starting": "Why it waits", "lost": "What happened"}.get(
                head.state, "Why it ended"
            )
            kind = job.error_class if job.error_message else None
            st.caption(literal(f"{label} ({kind.replace('_', ' ')})" if kind else label))
            st.text(head.why)


def actions(head: RunHead) -> None:
    """The same buttons in the same places in every state, so that a second click hits no other one."""
    job = head.job
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="run-actions"):
        for action in Action:
            is_open = action in head.actions and head.may_act
            st.button(
                LABELS[action] + ("…" if action in ASKS else ""),
                key=f"run-{action}",
                disabled=not is_open,
                help=HELP[action] if head.may_act else "Only its owner and admins may.",
                on_click=ask,
                args=(action, (job.id,)),
            )
        st.page_link(
            "app_pages/new_run.py",
            label="Clone",
            query_params={"from": job.id},
            help="A new run that begins with these settings, to be changed as you like.",
        )
        st.page_link(
            "app_pages/runs.py", label="Compare", query_params={"pick": job.id}, help="Choose others beside it."
        )


def notes(head: RunHead, known_tags: tuple[str, ...]) -> None:
    job = head.job
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="run-notes", width="content"):
        show_tags(job)
        if head.may_act:
            edit_notes(job, known_tags)


def note(head: RunHead) -> None:
    if head.job.note:
        st.text(head.job.note)


def _facts(head: RunHead) -> list[str]:
    job = head.job
    found = [job.kind, job.short_id, head.owner, f"pool {job.pool}"]
    return [*found, f"attempt {job.attempt}"] if job.attempt else found


def _since(head: RunHead) -> str:
    job = head.job
    if job.finished_at is not None:
        return "ended"
    return "started" if job.started_at is not None else "submitted"


def _progress(head: RunHead) -> None:
    job, pace = head.job, head.pace
    if not job.total_steps:
        return
    told = [f"step {count_text(job.step)} of {count_text(job.total_steps)}"]
    told += [f"{_step_text(pace.step_s)} a step"] if pace.step_s is not None else []
    told += [f"about {duration_text(pace.left_s)} left"] if pace.left_s is not None else []
    st.progress(min(1.0, job.step / job.total_steps), text=" · ".join(told))


def _step_text(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration_text(seconds)
