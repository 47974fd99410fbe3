"""The groups of a step as a gallery: each prompt's first image, what it asks, and how its responses fared."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from console.components.address import change
from console.components.dataset_rows import pager
from console.components.text import literal
from console.services.formats import number_text
from console.services.responses import Responses, StepGroups, prompt_text
from mmrl.data.thumbnails import thumbnail_of
from mmrl.runs.records import GroupRecord
from mmrl.types import ImageRef

_ON_A_PAGE = 24
_COLUMNS = 4
_MAX_TEXT = 140


def gallery(responses: Responses, found: StepGroups) -> None:
    start = pager("Groups", key="page", total=len(found.groups), size=_ON_A_PAGE)
    shown = found.groups[start : start + _ON_A_PAGE]
    for place in range(0, len(shown), _COLUMNS):
        for column, group in zip(st.columns(_COLUMNS), shown[place : place + _COLUMNS], strict=False):
            with column:
                _card(responses, group)


def _card(responses: Responses, group: GroupRecord) -> None:
    with st.container(border=True, key=f"group-{group.group_id}", gap="small"):
        for image in group.images[:1]:
            _image(responses, group, image)
        text = " ".join(prompt_text(group.prompt)[: 4 * _MAX_TEXT].split())
        st.caption(literal(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…") or "numbers only")
        truncated = sum(response.is_truncated for response in group.responses)
        mean = "no reward" if group.reward_mean is None else f"reward {number_text(group.reward_mean)}"
        spread = "" if group.reward_std is None else f"± {number_text(group.reward_std, 2)}"
        st.markdown(
            f"**{literal(mean)}** {literal(spread)}", help="Mean and standard deviation of the group's rewards."
        )
        if truncated:
            st.badge(f"{truncated} cut at the limit", color="orange")
        st.button(
            f"Group {group.group_id}",
            key=f"open-{group.group_id}",
            on_click=partial(change, group=str(group.group_id), view=None),
            width="stretch",
        )


def _image(responses: Responses, group: GroupRecord, image: ImageRef) -> None:
    path: Path | None = responses.image(image.sha256)
    if path is None:
        st.caption("its image was not kept")
        return
    num = len(group.images)
    alt = f"image 1 of {num} of group {group.group_id}" if num > 1 else f"image of group {group.group_id}"
    st.image(str(thumbnail_of(path, image.sha256, side=256)), alt=alt, width="stretch")
