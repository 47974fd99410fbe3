"""Asking more checkpoints the prompts of a comparison, and watching the jobs that do it until they are done."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import attempted, no_worker, part
from console.components.text import age, job_link, literal, state_badge
from console.services import asking_checkpoints
from console.services.asking_checkpoints import WAYS, Asked, Candidate, Prompts
from console.services.checkpoint_compare import PanelGroup
from console.services.formats import count_text
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job
from mmrl.jobs.states import TERMINAL, JobState

_EVERY_S = 2.0
_MAX_AT_ONCE = 5
_REFUSED = "ask-refused"


def ask_checkpoints(group: PanelGroup | None) -> None:
    """group: the panel that is compared, None where there is none yet."""
    with part("what may be asked"), st.container(border=True, key="ask", gap="small"):
        st.caption("Each checkpoint answers in a job of its own, on a worker, and appears here once it is done.")
        runs = asking_checkpoints.runs_to_ask(context.jobs(), also=words().get("run"))
        if not runs:
            st.caption("There is no run yet whose checkpoints could be asked.")
            return
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            run = _run(runs)
            prompts = _prompts(run, group)
        if prompts is None:
            return
        offered = asking_checkpoints.candidates(context.jobs(), run)
        answered = {each.step for each in offered if group and prompts.name == group.name and _has(each, group)}
        under_way = asking_checkpoints.steps_under_way(context.jobs(), run, prompts)
        chosen = _choose(offered, answered, under_way)
        st.button(
            f"Ask {len(chosen)} of them" if chosen else "Ask them",
            key="ask-submit",
            type="primary",
            disabled=not chosen,
            on_click=partial(_ask, chosen, prompts),
        )
        refused = st.session_state.pop(_REFUSED, None)
        if refused:
            st.text(refused)


def watch_asked(panel: str | None) -> None:
    """The jobs that answer the panel of this name, while one of them is under way, or has failed last."""
    if panel:
        with part("the jobs that answer"):
            found = asking_checkpoints.asked(context.jobs(), panel)
            is_live = any(each.job.state not in TERMINAL for each in found)
            st.fragment(_watch, run_every=_EVERY_S if is_live else None)(panel)


def _watch(panel: str) -> None:
    with part("the jobs that answer"):
        found = asking_checkpoints.asked(context.jobs(), panel)
        under_way = [each for each in found if each.job.state not in TERMINAL]
        if _has_ended(panel, under_way):
            st.rerun(scope="app")
        shown = [*under_way, *_failed_last(found)]
        if not shown:
            return
        with st.container(border=True, key="asked", gap="small"):
            st.markdown(f"**Answers that are being made**, {count_text(len(under_way))} under way")
            if under_way and not context.fleet().workers():
                no_worker()
            for each in shown:
                _asked(each)


def _run(runs: Sequence[Job]) -> Job:
    known = {run.id: run for run in runs}
    wanted = words().get("run")
    show_value("ask-run", wanted if wanted in known else runs[0].id)
    st.selectbox(
        "Run",
        list(known),
        format_func=lambda each: f"{known[each].name} · {known[each].short_id}",
        key="ask-run",
        width=320,
        on_change=changed("ask-run", lambda run: change(run=run, steps=None)),
    )
    return known[st.session_state["ask-run"]]


def _prompts(run: Job, group: PanelGroup | None) -> Prompts | None:
    """The panel that is compared, or the run's held-out data as a new one."""
    names: dict[str, str] = {"this": "the panel above"} if group else {}
    names |= {way: f"its held-out data, {told}" for way, told in WAYS.items()}
    options = list(names)
    wanted = words().get("prompts", "")
    show_value("ask-prompts", wanted if wanted in options else options[0])
    st.selectbox(
        "Prompts",
        options,
        format_func=names.__getitem__,
        key="ask-prompts",
        width=320,
        on_change=changed("ask-prompts", lambda each: change(prompts=each)),
        help="A panel freezes prompts, settings and seeds, so that all answers to it can be compared.",
    )
    chosen = st.session_state["ask-prompts"]
    if chosen == "this":
        assert group is not None
        return Prompts(group.name)
    with attempted():
        return asking_checkpoints.new_prompts(run, chosen)
    return None


def _choose(offered: Sequence[Candidate], answered: set[int], under_way: set[int]) -> list[Candidate]:
    """Where nothing was chosen, step 0 and the best or the last one, of those that did not answer yet."""
    known = {str(each.step): each for each in offered if each.step not in answered | under_way}
    asked_for = words().get("steps")
    if asked_for is None:
        ends = [each for each in offered if each.is_best] or list(offered[-1:])
        wanted = [str(each.step) for each in [*offered[:1], *ends]]
    else:
        wanted = asked_for.split(",")
    show_value("ask-steps", [step for step in dict.fromkeys(wanted) if step in known])
    st.multiselect(
        "Checkpoints",
        list(known),
        format_func=lambda step: known[step].label,
        key="ask-steps",
        max_selections=_MAX_AT_ONCE,
        on_change=changed("ask-steps", lambda steps: change(steps=",".join(steps) or "none")),
    )
    for told, steps in (("Answered already", answered), ("Under way", under_way)):
        if steps:
            st.caption(f"{told}: {', '.join(f'step {step}' for step in sorted(steps))}.")
    return [known[step] for step in st.session_state["ask-steps"] if step in known]


def _has(candidate: Candidate, group: PanelGroup) -> bool:
    return asking_checkpoints.is_answered(candidate, group.evaluations)


def _ask(chosen: Sequence[Candidate], prompts: Prompts) -> None:
    """A second click finds those of the first under way, and nothing left to ask."""
    if not chosen:
        return
    try:
        asking_checkpoints.ask(context.jobs(), chosen, prompts)
    except (MmrlError, OSError) as error:
        st.session_state[_REFUSED] = str(error)
    else:
        change(asked=prompts.name, steps=None, prompts=prompts.way, ids=None, panel=None)


def _has_ended(panel: str, under_way: Sequence[Asked]) -> bool:
    """Whether a job that was under way at the last look is so no more: the page then has new answers to show."""
    before = st.session_state.get("asked-before", (panel, frozenset()))
    now = frozenset(each.job.id for each in under_way)
    st.session_state["asked-before"] = (panel, now)
    return before[0] == panel and bool(before[1] - now)


def _failed_last(found: Sequence[Asked]) -> list[Asked]:
    """Of each checkpoint the newest job, where it has failed."""
    newest: dict[str, Asked] = {}
    for each in found:
        newest.setdefault(each.job.name, each)
    return [each for each in newest.values() if each.job.state in (JobState.FAILED, JobState.CANCELLED)]


def _asked(each: Asked) -> None:
    job = each.job
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        job_link(job)
        state_badge(job.state)
        age(job.started_at or job.queued_at)
    if job.state is JobState.QUEUED:
        st.caption(literal(context.jobs().why_pending(job).message))
    elif job.state in (JobState.FAILED, JobState.CANCELLED):
        st.text(job.error_message or "It left no message; its log may say more.")
    else:
        told = f"{each.answered[0]} of {each.answered[1]} prompts" if each.answered else each.message or "starting"
        st.progress(each.share, text=literal(told))
