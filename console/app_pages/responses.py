"""The page Responses: what the model said, prompt by prompt: image, responses by reward, why each has its reward."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import streamlit as st

from console import context
from console.components.address import change, words
from console.components.parts import empty_state, part
from console.components.response_cards import legend, prompt_side, response_card
from console.components.text import job_link, literal
from console.services.formats import count_text, number_text
from console.services.responses import ONLY, GroupFilter, Responses, StepGroups, prompt_text
from console.services.token_words import quantities_of
from mmrl.errors import NotFoundError
from mmrl.jobs.records import Job
from mmrl.runs.records import GroupRecord

_PLAIN = "plain text"


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
        responses = Responses(job)
        steps = responses.steps()
        if not any(steps.values()):
            empty_state("No samples yet", "Prompts and responses are kept at the steps that `record` names.")
            return
        split, step = _where(steps)
        found = _filtered(responses, split, step)
        if found.groups:
            _groups(job, responses, found)
        else:
            empty_state("No group fits", f"None of the {count_text(found.num_all)} groups of this step. Ask for less.")


def _where(steps: dict[str, list[int]]) -> tuple[str, int]:
    """Split and step, from the address or the last of the first; both may be changed."""
    given = words()
    splits = list(steps)
    st.session_state["responses-split"] = given["split"] if given.get("split") in splits else splits[0]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        if len(splits) > 1:
            st.segmented_control("Split", splits, key="responses-split", required=True, on_change=_take("split"))
        split = st.session_state["responses-split"]
        kept = steps[split]
        wanted = given.get("step", "")
        st.session_state["responses-step"] = int(wanted) if wanted.isdecimal() and int(wanted) in kept else kept[-1]
        if len(kept) > 1:
            st.select_slider("Step", kept, key="responses-step", on_change=_take("step"))
        else:
            st.caption(f"step {kept[0]}")
    return split, st.session_state["responses-step"]


def _filtered(responses: Responses, split: str, step: int) -> StepGroups:
    wanted = GroupFilter.of_address(words())
    everything = responses.groups(split, step, GroupFilter())
    _show_filter(wanted, ("total", *everything.parts))
    groups = tuple(group for group in everything.groups if wanted.fits(group))
    return StepGroups(split, step, everything.num_all, groups, everything.parts)


def _show_filter(wanted: GroupFilter, parts: tuple[str, ...]) -> None:
    for name in ("find", "only", "part"):
        st.session_state[f"responses-{name}"] = getattr(wanted, name) or ("" if name == "find" else None)
    for name in ("low", "high"):
        st.session_state[f"responses-{name}"] = getattr(wanted, name)
    if wanted.part not in parts:
        st.session_state["responses-part"] = None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="responses-filter"):
        placeholder = "text of prompt or response"
        st.text_input("Search", key="responses-find", placeholder=placeholder, width=260, on_change=_take("find"))
        st.selectbox(
            "Groups",
            list(ONLY),
            format_func=lambda word: ONLY[word],
            key="responses-only",
            placeholder="any",
            width=230,
            on_change=_take("only"),
        )
        st.selectbox("Reward", parts, key="responses-part", placeholder="any", width=160, on_change=_take("part"))
        if wanted.part is not None:
            st.number_input("from", key="responses-low", value=None, width=120, on_change=_take("low"))
            st.number_input("to", key="responses-high", value=None, width=120, on_change=_take("high"))


def _groups(job: Job, responses: Responses, found: StepGroups) -> None:
    """The list of groups, and the one that is looked at."""
    ids = [group.group_id for group in found.groups]
    wanted = words().get("group", "")
    place = ids.index(int(wanted)) if wanted.isdecimal() and int(wanted) in ids else 0
    _overview(found)
    _turner(found, place)
    group = responses.group(found.split, found.step, ids[place])
    if group is not None:
        _inspect(job, responses, group)


def _overview(found: StepGroups) -> None:
    means = [group.reward_mean for group in found.groups if group.reward_mean is not None]
    mean = f" · mean reward {number_text(statistics.fmean(means))}" if means else ""
    st.caption(literal(f"{count_text(len(found.groups))} of {count_text(found.num_all)} groups of this step{mean}"))


def _turner(found: StepGroups, place: int) -> None:
    labels = {group.group_id: _label(group) for group in found.groups}
    ids = list(labels)
    st.session_state["responses-group"] = ids[place]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _turn("Earlier", ids[place - 1] if place else None)
        st.selectbox("Group", ids, format_func=labels.__getitem__, key="responses-group", on_change=_take("group"))
        _turn("Later", ids[place + 1] if place + 1 < len(ids) else None)


def _label(group: GroupRecord) -> str:
    text = " ".join(prompt_text(group.prompt).split())
    short = text if len(text) <= 80 else f"{text[:80]}…"
    mean = "–" if group.reward_mean is None else number_text(group.reward_mean, 3)
    return f"{group.group_id} · reward {mean} · {short or 'numbers only'}"


def _turn(label: str, group_id: int | None) -> None:
    st.button(
        label,
        key=f"responses-{label.lower()}",
        disabled=group_id is None,
        on_click=lambda: change(group=str(group_id)),
    )


def _inspect(job: Job, responses: Responses, group: GroupRecord) -> None:
    kept = list(dict.fromkeys(name for response in group.responses for name in quantities_of(response)))
    left, right = st.columns([2, 3], gap="large")
    with left, st.container(key="prompt"):
        prompt_side(responses, group)
    with right:
        st.session_state["responses-tokens"] = words()["tokens"] if words().get("tokens") in kept else _PLAIN
        st.segmented_control(
            "Shade tokens by", [_PLAIN, *kept], key="responses-tokens", required=True, on_change=_take("tokens")
        )
        chosen = st.session_state["responses-tokens"]
        quantity = None if chosen == _PLAIN else chosen
        if quantity is not None:
            legend(quantity)
        for place, response in enumerate(group.by_reward, start=1):
            response_card(response, place=place, job=job, quantity=quantity)
        if group.greedy is not None:
            response_card(group.greedy, place=0, job=job, quantity=quantity, name="greedy")


def _take(name: str) -> Callable[[], None]:
    """What a widget was set to goes into the address."""

    def take() -> None:
        value = st.session_state[f"responses-{name}"]
        change(**{name: None if value in (None, "", _PLAIN) else str(value)})
        if name in ("split", "step", "find", "only", "part"):
            change(group=None)
        if name == "split":
            change(step=None)

    return take


page()
