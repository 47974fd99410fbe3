"""The page New run: from a beginning, over a draft that is saved as one types, to a launched run."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components import begin, run_form
from console.components.address import change, words
from console.components.changes import heard
from console.components.draft_side import as_text, go_to_launched_run, launch_box, preflight
from console.components.form import Form
from console.components.parts import empty_state, part, problem
from console.components.rewards_form import rewards
from console.components.text import job_link, literal
from console.services.beginnings import Beginnings, templates
from console.services.choices import known_data, known_models
from console.services.drafts import Draft, Drafts
from console.services.form_fields import run_form as form_of
from console.services.launching import Launching
from mmrl.errors import MmrlError, NotFoundError

_NUM_PAST = 100


def show() -> None:
    heard()
    go_to_launched_run()
    viewer, jobs = context.viewer(), context.jobs()
    drafts = Drafts(viewer)
    launching = Launching(drafts, context.processes(), jobs, viewer, context.database().settings)
    _begin_as_asked(Beginnings(drafts, jobs))
    draft_id = words().get("draft")
    if draft_id is None:
        st.title("New run")
        _choose(drafts, launching)
        return
    try:
        draft = drafts.get(draft_id)
    except NotFoundError as error:
        st.title("New run")
        empty_state("This draft is gone", str(error))
        _choose(drafts, launching)
        return
    if draft.job_id is not None:
        _launched(draft, drafts)
    else:
        _prepare(draft, drafts, launching)


def _begin_as_asked(beginnings: Beginnings) -> None:
    """Addresses that ask for a beginning become those of a draft, so that a reload makes no second one."""
    asked = words()
    ways = {
        "template": beginnings.from_template,
        "from": beginnings.from_job,
        "checkpoint": beginnings.from_checkpoint,
        "data": lambda names: beginnings.with_data(names.split(",")),
        "marks": lambda name: beginnings.from_marks(name, asked.get("base", ""), asked.get("goal", "preference")),
    }
    for name, make in ways.items():
        if asked.get(name):
            try:
                draft = make(asked[name])
            except MmrlError as error:
                change(**dict.fromkeys(asked))
                problem(f"This cannot be a beginning: {error}")
                return
            change(**{**dict.fromkeys(asked), "draft": draft.id})
            return


def _choose(drafts: Drafts, launching: Launching) -> None:
    with part("the drafts"):
        begin.drafts_list(drafts)
    begin.tiny_model(launching)
    begin.template_cards(templates())
    with part("past runs"):
        begin.past_runs(context.jobs().list(limit=_NUM_PAST))


def _launched(draft: Draft, drafts: Drafts) -> None:
    st.title("New run")
    empty_state(
        "This draft was launched", "It stays as it was launched. A copy of it can be changed and launched again."
    )
    assert draft.job_id is not None
    with part("its run"), st.container(horizontal=True, key="launched"):
        job_link(context.jobs().get(draft.job_id))

    def copy() -> None:
        change(draft=drafts.copy(draft.id).id)

    st.button("Copy it", key="copy", on_click=copy)


def _prepare(draft: Draft, drafts: Drafts, launching: Launching) -> None:
    checked = launching.check(draft)
    with st.container(horizontal=True, vertical_alignment="center", key="draft_head"):
        st.title("New run", width="content")
        st.caption(f"a draft, begun with {literal(draft.origin)}; saved as you type")
    left, right = st.columns([3, 2], gap="large")
    with left:
        if draft.data is None:
            problem("The YAML has an error, told beside it. Mend it there, and the form is back.")
        else:
            _form(Form(drafts, draft, checked), launching)
    with right:
        launch_box(draft, drafts, launching, checked)
        with part("the check of this draft"):
            preflight(draft.id, drafts, launching)
        as_text(draft, drafts, launching, checked)


def _form(form: Form, launching: Launching) -> None:
    groups = form_of(form.draft.data or {})
    kind = run_form.goal(form)
    models = known_models(context.jobs().list(limit=_NUM_PAST), templates())
    run_form.name_and_model(form, models)
    with part("the choice of data"):
        run_form.data(form, known_data(context.catalogue().registry))
    if kind in ("rl", "preference"):
        st.subheader("Algorithm")
        run_form.algorithm(form, kind)
    st.subheader("Settings that matter most")
    run_form.few(form, groups)
    if kind != "reward_model":
        meaning = (
            "What answers are scored by." if kind == "rl" else "What sampled answers are graded by in evaluations."
        )
        st.subheader("Rewards", help=meaning)
        rewards(form, launching)
    st.subheader("Advanced", help="All other settings, by their group in the config.")
    run_form.advanced(form, groups)


show()
