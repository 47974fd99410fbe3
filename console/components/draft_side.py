"""Beside the form: what a run would take, how it is launched, and the same as YAML and as a command."""

from __future__ import annotations

import time

import streamlit as st

from console.components.address import change, show_value
from console.components.changes import changed, heard, tell
from console.components.form import FORM_ERROR
from console.components.parts import problem
from console.components.preflight_card import preflight_card, preflight_failure, preflight_working
from console.services.drafts import Draft, Drafts
from console.services.launching import Checked, Launching, preflight_of
from mmrl.errors import MmrlError

QUIET_S = 2.0
"""A draft that has not changed for so long is checked by itself."""
_EVERY_S = 1.0
_LAUNCHED = "launched_job"
_NUM_FAULTS = 8


def launch_box(draft: Draft, drafts: Drafts, launching: Launching, checked: Checked) -> None:
    """Launch acts once, however often it is clicked; a draft that cannot be launched can still be kept."""

    def launch() -> None:
        try:
            st.session_state[_LAUNCHED] = launching.launch(draft.id).id
        except MmrlError as error:
            st.session_state[FORM_ERROR] = str(error)

    def keep() -> None:
        drafts.change(draft.id)
        change(draft=None)

    with st.container(border=True, key="launch_box", gap="small"):
        with st.container(horizontal=True, key="launch_buttons"):
            st.button("Launch", key="launch", type="primary", disabled=not checked.is_sound, on_click=launch)
            st.button(
                "Keep for later", key="keep", on_click=keep, help="It is saved as you type; this leads to all drafts."
            )
        if draft.checkpoint is not None:
            _going_on(draft, drafts)
        error = st.session_state.pop(FORM_ERROR, None)
        if error:
            problem(error)
        if checked.is_sound:
            st.caption("Every setting is allowed. It waits in the queue until a worker takes it.")
        else:
            _faults(checked)


def _going_on(draft: Draft, drafts: Drafts) -> None:
    key = f"{draft.id}_going_on"
    show_value(key, draft.resume_checkpoint is not None)

    def change(is_on: bool) -> None:
        drafts.change(draft.id, resume_checkpoint=draft.checkpoint if is_on else None)

    st.toggle(
        "Go on with its optimiser and its place in the data",
        key=key,
        on_change=changed(key, change),
        help="Off: a new run that begins with the checkpoint's weights. On: the same run goes on with what you change.",
    )


def go_to_launched_run() -> None:
    """After a launch: the run's own page."""
    job_id = st.session_state.pop(_LAUNCHED, None)
    if job_id is not None:
        st.switch_page("app_pages/run.py", query_params={"id": job_id})


def preflight(draft_id: str, drafts: Drafts, launching: Launching) -> None:
    """Live: starts by itself when the draft has been quiet for a moment, or by its button."""
    with st.container(border=True, key="preflight", gap="small"):

        @st.fragment(run_every=_EVERY_S)
        def look() -> None:
            heard()
            draft = drafts.get(draft_id)
            is_sound = launching.check(draft).is_sound
            with st.container(horizontal=True, vertical_alignment="center", key="preflight_head"):
                st.markdown("**What this run would take**")
                again = st.button("Check now", key="check_now", type="tertiary", disabled=not is_sound)
            _one_look(draft, launching, is_sound=is_sound, again=again)

        look()


def as_text(draft: Draft, drafts: Drafts, launching: Launching, checked: Checked) -> None:
    """The YAML, to be changed by hand too, and the command that does the same."""
    with st.container(border=True, key="as_text", gap="small"):
        st.markdown("**The same as YAML**")
        key = f"{draft.id}_yaml"
        if st.session_state.get(key) != draft.text:
            tell(key, draft.text)

        def change(text: str) -> None:
            try:
                drafts.set_text(draft.id, text, base=draft.text)
            except MmrlError as error:
                st.session_state[FORM_ERROR] = str(error)

        st.text_area("Config", key=key, height=380, on_change=changed(key, change), label_visibility="collapsed")
        st.caption("Ctrl-Enter takes over what you changed here; the form follows.")
        if not checked.is_sound:
            _faults(checked)
        st.markdown("**The same from a shell**")
        st.code(launching.command(draft), language=None, wrap_lines=True)


def _one_look(draft: Draft, launching: Launching, *, is_sound: bool, again: bool) -> None:
    task = launching.preflight(draft)
    is_current = task is not None and task.stamp == draft.stamp
    is_quiet = time.time() - draft.updated_at >= QUIET_S
    if is_sound and (again or (is_quiet and not is_current)):
        try:
            if again:
                launching.forget_preflight(draft)
            task = launching.start_preflight(draft)
            is_current = True
        except MmrlError as error:
            problem(str(error))
            return
    if task is None:
        st.caption("Begins when the settings are allowed." if not is_sound else "Begins when you pause for a moment.")
        return
    if not task.is_over:
        preflight_working(task)
        report = st.session_state.get(f"{draft.id}_report")
        if report is not None:
            st.caption(":orange[Below: of settings from before your last change.]")
            preflight_card(report)
        return
    if not is_current:
        st.caption(":orange[Of settings from before your last change.]")
    report = preflight_of(task)
    if report is None:
        preflight_failure(task)
        return
    st.session_state[f"{draft.id}_report"] = report
    preflight_card(report)


def _faults(checked: Checked) -> None:
    count = len(checked.faults)
    st.caption(f":red[{count} setting{'s are' if count != 1 else ' is'} missing or not allowed:]")
    for fault in checked.faults[:_NUM_FAULTS]:
        st.text(str(fault))
    if count > _NUM_FAULTS:
        st.caption(f"and {count - _NUM_FAULTS} more")
