"""The page Responses: what the model said, prompt by prompt: image, responses by reward, why each has its reward."""

from __future__ import annotations

import statistics
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from console import context
from console.components.address import change, show_value, words
from console.components.all_steps import all_steps
from console.components.changes import changed
from console.components.export_button import export_button
from console.components.group_gallery import gallery
from console.components.long_text import text_style
from console.components.over_steps import over_steps
from console.components.parts import empty_state, part
from console.components.prompt_side import prompt_side
from console.components.response_cards import absent, legend, response_card
from console.components.reward_reading import how_to_read
from console.components.sample_filter import clear_filter, show_filter, take
from console.components.text import job_link, literal
from console.services.formats import count_text, number_text
from console.services.group_filter import GroupFilter
from console.services.processed_image import pixel_limits
from console.services.response_export import export_history, export_step
from console.services.responses import Responses, StepGroups, prompt_text
from console.services.reward_sum import spread_of
from console.services.run_rewards import rewards_of
from console.services.sample_boxes import reward_for
from console.services.token_words import quantities_of
from mmrl.errors import NotFoundError
from mmrl.jobs.records import Job
from mmrl.runs.records import GroupRecord

_PLAIN = "plain text"
_VIEWS = {"group": "Group by group", "gallery": "Gallery", "steps": "One prompt over all steps"}


def page() -> None:
    st.title("Responses")
    try:
        job = context.jobs().get(words().get("run", ""))
    except NotFoundError:
        empty_state("No run is named", "Choose one on the page Runs, and there its part Samples.")
        st.page_link("app_pages/runs.py", label="Runs")
        return
    job_link(job)
    with part("the responses"):
        text_style()
        responses = Responses(job, context.jobs().shards(job.id))
        steps = responses.steps()
        if not any(steps.values()):
            empty_state("No samples yet", "Prompts and responses are kept at the steps that `record` names.")
            return
        split, step = _where(steps)
        if step is None:
            parts = [each.part for each in rewards_of(job).listed]
            show_filter(GroupFilter.of_address(words()), ("total", *parts))
            all_steps(job, responses, split)
            return
        found, wanted = _filtered(responses, split, step)
        if not found.groups:
            empty_state("No group fits", f"None of the {count_text(found.num_all)} groups of this step. Ask for less.")
            st.button("Clear the filter", key="responses-clear-all", on_click=clear_filter)
            return
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            view = _view()
            export = st.container(width="content")
        _head(found)
        if view == "steps":
            _history(job, responses, found, export)
            return
        with export:
            export_button(export_step(job, responses, found, wanted))
        if view == "gallery":
            gallery(responses, found)
        else:
            group = _chosen(responses, found)
            if group is not None:
                _inspect(job, responses, group)


def _where(steps: dict[str, list[int]]) -> tuple[str, int | None]:
    """Split and step, from the address or the last of the first; both may be changed. None for all steps."""
    given = words()
    splits = list(steps)
    show_value("responses-split", given["split"] if given.get("split") in splits else splits[0])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        if len(splits) > 1:
            st.segmented_control("Split", splits, key="responses-split", required=True, on_change=take("split"))
        split = st.session_state["responses-split"]
        kept = steps[split]
        if len(kept) > 1 and _is_over_all():
            return split, None
        wanted = given.get("step", "")
        show_value("responses-step", int(wanted) if wanted.isdecimal() and int(wanted) in kept else kept[-1])
        if len(kept) > 1:
            st.select_slider("Step", kept, key="responses-step", on_change=take("step"))
        else:
            st.caption(f"step {kept[0]}")
    return split, st.session_state["responses-step"]


def _is_over_all() -> bool:
    options = {"one": "one step", "all": "all steps"}
    show_value("responses-steps", "all" if words().get("steps") == "all" else "one")
    st.segmented_control(
        "Look through",
        list(options),
        format_func=options.__getitem__,
        key="responses-steps",
        required=True,
        on_change=take("steps"),
    )
    return bool(st.session_state["responses-steps"] == "all")


def _filtered(responses: Responses, split: str, step: int) -> tuple[StepGroups, GroupFilter]:
    wanted = GroupFilter.of_address(words())
    found = responses.groups(split, step, wanted)
    show_filter(wanted, ("total", *found.parts))
    return found, wanted


def _view() -> str:
    show_value("responses-view", words()["view"] if words().get("view") in _VIEWS else "group")
    st.segmented_control(
        "View",
        list(_VIEWS),
        format_func=_VIEWS.__getitem__,
        key="responses-view",
        required=True,
        label_visibility="collapsed",
        on_change=changed("responses-view", lambda view: change(view=None if view == "group" else view, page=None)),
    )
    return str(st.session_state["responses-view"])


def _chosen(responses: Responses, found: StepGroups) -> GroupRecord | None:
    """The list of groups, and the one that is looked at."""
    ids = [group.group_id for group in found.groups]
    asked = words().get("group", "")
    place = ids.index(int(asked)) if asked.isdecimal() and int(asked) in ids else 0
    _turner(found, place)
    return responses.group(found.split, found.step, ids[place])


def _history(job: Job, responses: Responses, found: StepGroups, export: DeltaGenerator) -> None:
    group = _chosen(responses, found)
    if group is None:
        return
    points = responses.history(found.split, group.prompt_id)
    with export:
        export_button(export_history(job, responses, found.split, points))
    left, right = st.columns([2, 3], gap="large")
    with left:
        _prompt(job, responses, group)
    with right:
        over_steps(responses, found.split, points)


def _head(found: StepGroups) -> None:
    means = [group.reward_mean for group in found.groups if group.reward_mean is not None]
    mean = f" · mean reward {number_text(statistics.fmean(means))}" if means else ""
    st.caption(literal(f"{count_text(len(found.groups))} of {count_text(found.num_all)} groups of this step{mean}"))


def _turner(found: StepGroups, place: int) -> None:
    labels = {group.group_id: _label(group) for group in found.groups}
    ids = list(labels)
    show_value("responses-group", ids[place])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _turn("Earlier", ids[place - 1] if place else None)
        st.selectbox("Group", ids, format_func=labels.__getitem__, key="responses-group", on_change=take("group"))
        _turn("Later", ids[place + 1] if place + 1 < len(ids) else None)


def _label(group: GroupRecord) -> str:
    text = " ".join(prompt_text(group.prompt)[:400].split())
    short = text if len(text) <= 80 else f"{text[:80]}…"
    mean = "–" if group.reward_mean is None else number_text(group.reward_mean, 3)
    return f"{group.group_id} · reward {mean} · {short or 'numbers only'}"


def _turn(label: str, group_id: int | None) -> None:
    st.button(
        label,
        key=f"responses-{label.lower()}",
        disabled=group_id is None,
        on_click=partial(change, group=str(group_id), page=None),
    )


def _prompt(job: Job, responses: Responses, group: GroupRecord) -> None:
    with st.container(key="prompt"):
        rewards = rewards_of(job)
        prompt_side(responses, group, limits=pixel_limits(job), framed=reward_for(rewards.framed, group.meta))


def _inspect(job: Job, responses: Responses, group: GroupRecord) -> None:
    left, right = st.columns([2, 3], gap="large")
    with left:
        _prompt(job, responses, group)
    with right:
        rewards = rewards_of(job)
        shaping = rewards.shaping
        how_to_read(rewards)
        quantity = _quantity(group)
        st.caption(literal(f"The group's rewards: {spread_of(group)}."))
        for place, response in enumerate(group.by_reward, start=1):
            response_card(response, group, place=place, job=job, quantity=quantity, shaping=shaping)
        if group.greedy is not None:
            response_card(group.greedy, group, place=0, job=job, quantity=quantity, shaping=shaping, name="greedy")


def _quantity(group: GroupRecord) -> str | None:
    """What tokens are shaded by, of what the run computed for this group."""
    kept = list(dict.fromkeys(name for response in group.responses for name in quantities_of(response)))
    show_value("responses-tokens", words()["tokens"] if words().get("tokens") in kept else _PLAIN)
    st.segmented_control(
        "Shade tokens by",
        [_PLAIN, *kept],
        key="responses-tokens",
        required=True,
        on_change=changed("responses-tokens", lambda name: change(tokens=None if name == _PLAIN else name)),
    )
    absent(kept)
    chosen = str(st.session_state["responses-tokens"])
    if chosen == _PLAIN:
        return None
    legend(chosen)
    return chosen


page()
