"""A past run's responses under changed rewards: which run, which of its steps, and with which rewards."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import attempted, empty_state, part
from console.components.rescore_result import rescore_result
from console.components.reward_task import rewards_area, set_rewards, task_view, work
from console.components.run_choice import run_choice
from console.services.responses import Responses
from console.services.reward_work import rewards_text, stamp_of

_NONE = ("No run yet", "Responses of a run with rewards are scored anew. Start one on New run.")


def rescore() -> None:
    job = run_choice("rescore-run", kinds=("rl",), forget=("split", "steps"), none=_NONE)
    if job is None:
        return
    with part("the run's responses"):
        steps = {split: kept for split, kept in Responses(job).steps().items() if kept}
        if not steps:
            empty_state("No responses were kept", "This run keeps none with their text; see `record` of its config.")
            return
        what = f"rescore-{job.id}"
        text = rewards_area(
            what, rewards_text(job), label="Rewards to score with, a list in YAML; it begins as the run's"
        )
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            split = _split(list(steps))
            kept = steps[split]
            first, last = _range(split, kept)
            if st.button("Score them anew", key="rescore-start", type="primary"):
                with attempted():
                    work().start_rescore(text, job, split, first, last)
            st.button(
                "Back to the run's own", key="rescore-reset", on_click=set_rewards, args=(what, rewards_text(job))
            )
        task_view(
            "rescore", stamp_of(text, job.id, split, str(first), str(last)), lambda data: rescore_result(job, data)
        )


def _split(splits: Sequence[str]) -> str:
    asked = words().get("split")
    show_value("rescore-split", asked if asked in splits else splits[0])
    st.selectbox(
        "Split",
        splits,
        key="rescore-split",
        width=110,
        on_change=changed("rescore-split", lambda new: change(split=new, steps=None)),
    )
    return str(st.session_state["rescore-split"])


def _range(split: str, kept: Sequence[int]) -> tuple[int, int]:
    if len(kept) == 1:
        st.caption(f"step {kept[0]}")
        return kept[0], kept[0]
    asked = [int(each) for each in words().get("steps", "").split("-") if each.isdecimal()]
    is_there = len(asked) == 2 and asked[0] <= asked[1] and set(asked) <= set(kept)
    first, last = st.select_slider(
        "Steps",
        kept,
        value=(asked[0], asked[1]) if is_there else (kept[max(0, len(kept) - 10)], kept[-1]),
        key=f"rescore-steps-{split}",
        width=260,
        on_change=changed(f"rescore-steps-{split}", lambda new: change(steps="-".join(map(str, new)))),
    )
    return int(first), int(last)
