"""Where a new run begins: a draft that waits, the tiny model, a template, a past run, a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from console.components.parts import problem
from console.components.text import age, literal
from console.services.beginnings import GOALS, TINY, Template, tiny_model_is_there
from console.services.drafts import Draft, Drafts
from console.services.formats import duration_text
from console.services.launching import Launching
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job

_EVERY_S = 1.0
_PAGE = "app_pages/new_run.py"


def drafts_list(drafts: Drafts) -> None:
    """What was begun and not launched."""
    waiting = drafts.all()
    if not waiting:
        return
    st.subheader("Go on with a draft", help="Drafts are saved as you type, on the server.")
    with st.container(border=True, key="drafts", gap="xsmall"):
        for draft in waiting[:20]:
            _draft(draft, drafts)


def tiny_model(launching: Launching) -> None:
    """From nothing to a run that learns, on any machine."""
    with st.container(border=True, key="tiny"):
        st.markdown("**Try it with the tiny model**")
        st.write(
            "A vision-language model of 0.6 million parameters and 1,200 images of handwritten digits, both made on "
            "this machine. A run takes a few minutes on a CPU, and you see every page at work."
        )
        if tiny_model_is_there():
            st.page_link(_PAGE, label="Begin with the tiny model", query_params={"template": TINY})
            return

        def prepare() -> None:
            try:
                launching.prepare_tiny_model()
            except MmrlError as error:
                st.session_state["prepare_error"] = str(error)

        task = launching.preparing()
        if task is None or task.state == "failed":
            if task is not None:
                problem(task.error or "It could not be prepared.")
            st.button("Prepare the tiny model", key="prepare", type="primary", on_click=prepare)
            st.caption("Takes about a minute.")
        elif not task.is_over:
            _preparing(launching)
        error = st.session_state.pop("prepare_error", None)
        if error:
            problem(error)


def template_cards(templates: Sequence[Template]) -> None:
    """Configs that work as they are, and empty ones by goal."""
    st.subheader("Begin with a template")
    ready = [each for each in templates if each.needs and each.name != TINY]
    empty = [each for each in templates if not each.needs]
    for row in (ready, empty):
        if not row:
            continue
        for place, each in zip(st.columns(len(row)), row, strict=True):
            with place, st.container(border=True, height="stretch", key=f"template_{each.name.replace('.', '-')}"):
                title = each.title if each.needs else GOALS[each.kind][0]
                st.markdown(f"**{literal(title)}**")
                st.text(each.about)
                if each.needs:
                    st.caption(f"Needs {each.needs}")
                label = "Use it" if each.needs else "Begin empty"
                st.page_link(_PAGE, label=f"{label}: {literal(title)}", query_params={"template": each.name})


def past_runs(jobs: Sequence[Job]) -> None:
    """A past run with something changed, or what it learned as the beginning of another one."""
    if not jobs:
        return
    st.subheader("Begin with a past run")
    by_id = {job.id: job for job in jobs}
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        chosen = st.selectbox(
            "Run",
            list(by_id),
            index=None,
            key="past_run",
            format_func=lambda job_id: f"{by_id[job_id].name} · {by_id[job_id].state} · {by_id[job_id].short_id}",
            placeholder="choose a run, the newest first",
        )
    if chosen is None:
        return
    with right, st.container(horizontal=True, key="past_run_ways"):
        st.page_link(_PAGE, label="Change its settings", query_params={"from": chosen})
        st.page_link(_PAGE, label="Begin with its last checkpoint", query_params={"checkpoint": f"{chosen}@last"})


@st.dialog("Throw this draft away?")
def confirm_removal(draft_id: str, drafts: Drafts) -> None:
    """Asks about one draft by its id; acts on that one, once."""
    try:
        draft = drafts.get(draft_id)
    except MmrlError:
        st.write("It is gone already.")
        return
    st.text(draft.name)
    st.write("Its settings are lost for good. Runs that were launched are not touched.")
    with st.container(horizontal=True):
        if st.button("Throw it away", key="confirm_removal", type="primary"):
            drafts.remove(draft_id)
            st.rerun()
        if st.button("Keep it", key="keep_draft"):
            st.rerun()


def _draft(draft: Draft, drafts: Drafts) -> None:
    name, origin, when, gone = st.columns([4, 4, 2, 2], vertical_alignment="center")
    with name:
        st.page_link(_PAGE, label=literal(draft.name), query_params={"draft": draft.id})
    origin.caption(f"begun with {literal(draft.origin)}")
    with when:
        age(datetime.fromtimestamp(draft.updated_at, UTC))
    with gone:
        if st.button("Throw away", key=f"remove_{draft.id}", type="tertiary"):
            confirm_removal(draft.id, drafts)


def _preparing(launching: Launching) -> None:
    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        task = launching.preparing()
        if task is None or task.is_over:
            st.rerun()
        st.text(f"Preparing for {duration_text(task.seconds)}…")
        for line in task.progress[-2:]:
            st.caption(literal(line[-160:]))
        st.caption("You may leave this page; it goes on.")

    look()
