"""The groups of all steps that fit the filter, the newest first: each with its prompt, and the way to its own step."""

from __future__ import annotations

from functools import partial

import streamlit as st

from console.components.address import change, words
from console.components.export_button import export_button
from console.components.long_text import model_text
from console.components.parts import empty_state
from console.components.text import literal
from console.services.formats import count_text, number_text
from console.services.group_filter import GroupFilter
from console.services.response_export import export_found
from console.services.responses import Responses, prompt_text
from console.services.run_search import Found, Place
from mmrl.data.thumbnails import thumbnail_of
from mmrl.jobs.records import Job
from mmrl.runs.inert import inert
from mmrl.runs.records import GroupRecord, ResponseRecord

_MAX_PROMPT = 240
_MAX_TEXT = 400
_NONE = ("No group fits", "All steps were looked through. Ask for less.")
_NO_MORE = (
    "No more groups fit",
    "The oldest step is reached. Those that fit, if any, came on the pages before this one: begin again from the "
    "newest step, or ask for less.",
)
_SHOWN = 2
"""Responses of a group: those that bear the text that is looked for come first, else the best."""


def all_steps(job: Job, responses: Responses, split: str) -> None:
    wanted = GroupFilter.of_address(words())
    after = Place.of_text(words().get("after", ""))
    found = responses.search(split, wanted, after)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="all-steps-head"):
        st.caption(_told(found), width="content")
        if found.groups:
            export_button(export_found(job, responses, split, found, wanted))
    if not found.groups and found.then is None:
        empty_state(*(_NONE if after is None else _NO_MORE))
    for group in found.groups:
        _card(job, responses, group, wanted)
    with st.container(horizontal=True, gap="small"):
        st.button("Further back", key="all-steps-older", disabled=found.then is None, on_click=partial(_go, found.then))
        if after is not None:
            st.button("From the newest step", key="all-steps-newest", on_click=partial(_go, None))


def _go(place: Place | None) -> None:
    change(after=None if place is None else str(place))


def _told(found: Found) -> str:
    """What was looked through, since the groups of all steps are not counted."""
    if found.newest is None or found.oldest is None:
        return "There are no steps left to look through."
    num = len(found.groups)
    where = f"step {found.newest}" if found.newest == found.oldest else f"steps {found.newest} to {found.oldest}"
    rest = "; earlier ones were not looked through yet" if found.then is not None else ""
    return f"{count_text(num)} {'group' if num == 1 else 'groups'} found in {where}{rest}."


def _card(job: Job, responses: Responses, group: GroupRecord, wanted: GroupFilter) -> None:
    with st.container(border=True, key=f"found-{group.step}-{group.group_id}", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.page_link(
                "app_pages/responses.py",
                label=f"step {group.step}, group {group.group_id}",
                query_params={
                    "run": job.id,
                    "split": group.split,
                    "step": str(group.step),
                    "group": str(group.group_id),
                    **wanted.address(),
                },
            )
            st.caption(literal(_figures(group)), width="content")
            truncated = sum(response.is_truncated for response in group.responses)
            if truncated:
                st.badge(f"{truncated} cut at the limit", color="orange")
        with st.container(horizontal=True, gap="medium"):
            _image(responses, group)
            with st.container(gap="xsmall", width="stretch"):
                text = " ".join(prompt_text(group.prompt)[: 4 * _MAX_PROMPT].split())
                st.text(_cut(text, _MAX_PROMPT) or "Only the numbers of this prompt were kept.")
                for response in shown_of(group, wanted):
                    _response(group, response)


def _figures(group: GroupRecord) -> str:
    mean = "no reward" if group.reward_mean is None else f"mean reward {number_text(group.reward_mean)}"
    spread = "" if group.reward_std is None else f" ± {number_text(group.reward_std, 2)}"
    num = len(group.responses)
    shown = f", {_SHOWN} of them here" if num > _SHOWN else ""
    return f"{mean}{spread} · {count_text(num)} responses{shown}"


def _image(responses: Responses, group: GroupRecord) -> None:
    for image in group.images[:1]:
        path = responses.image(image.sha256)
        if path is not None:
            alt = f"image of step {group.step}, group {group.group_id}"
            st.image(str(thumbnail_of(path, image.sha256, side=256)), alt=alt, width=112)


def shown_of(group: GroupRecord, wanted: GroupFilter) -> list[ResponseRecord]:
    """First those that have the text, then those that were cut where these are asked for; of equals the best."""
    text = wanted.find.casefold()

    def is_asked_for(each: ResponseRecord) -> tuple[bool, bool]:
        has_text = bool(text) and text in (each.text or "").casefold()
        return has_text, wanted.only == "truncated" and each.is_truncated

    return sorted(group.by_reward, key=is_asked_for, reverse=True)[:_SHOWN]


def _response(group: GroupRecord, response: ResponseRecord) -> None:
    reward = "no reward" if response.reward is None else f"reward {number_text(response.reward)}"
    st.caption(literal(f"{reward} · cut at the limit" if response.is_truncated else reward))
    if response.text is None:
        st.text("Only the numbers of this response were kept.")
    else:
        model_text(response.text, key=f"found-{group.step}-{group.group_id}-{response.sample_idx}", limit=_MAX_TEXT)


def _cut(text: str, most: int) -> str:
    return inert(text if len(text) <= most else f"{text[:most]}…")
