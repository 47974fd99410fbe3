"""Rewards beside people's marks: how often each prefers the answer that people prefer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import streamlit as st

from console import context
from console.components.export_button import export_button
from console.components.long_text import model_text
from console.components.number_table import number_table
from console.components.parts import attempted, empty_state, part
from console.components.reward_task import rewards_area, task_view, work
from console.components.reward_try import dataset_refs, parts
from console.components.text import literal
from console.services.blindness import known_to
from console.services.formats import count_text, number_text
from console.services.reward_export import export_agreement, export_pairs
from console.services.reward_marks import marked_rewards
from console.services.reward_work import stamp_of
from mmrl.jobs.marks import Marks

_SHOWN = 20
_HELP = (
    "Of the pairs in which people prefer one answer and the reward gives different values, the share in which it gives "
    "more to the one that they prefer; 0.5 is a coin's. The interval is Wilson's at 95 %, over the prompts: "
    "pairs of one prompt are no independent draws."
)


def people(default: str) -> None:
    st.subheader("As answers were scored", help=_HELP)
    with part("the marks"):
        marks, viewer = Marks(context.database(), context.viewer()), context.viewer()
        known = known_to(viewer.id, marks.all(), marks)
        found = marked_rewards(known.marks, context.jobs())
        if known.note:
            st.caption(known.note)
        elif not found.num_pairs:
            empty_state(
                "No marks yet", "People judge answers on the page Label, or in a conversation of the Playground."
            )
        if found.num_pairs:
            people_text = "1 person" if found.num_people == 1 else f"{count_text(found.num_people)} people"
            unknown = f"; {count_text(found.num_unknown)} of them were never scored" if found.num_unknown else ""
            told = f"{count_text(found.num_pairs)} pairs, judged by {people_text}{unknown}."
            rows = [asdict(each) for each in found.agreements]
            with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
                st.caption(told, width="content")
                export_button(export_agreement(rows, about={"marks": told}), key="people-export")
            agreement_table(rows, key="marked")
        st.page_link("app_pages/label.py", label="Label")
    st.subheader("Other rewards on pairs of a data set", help="The rewards below score both answers of each pair anew.")
    refs = dataset_refs()
    if not refs:
        empty_state("No data set yet", "Pairs are rows with chosen and rejected answers, such as Label makes of marks.")
        return
    text = rewards_area("people", default)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        ref = st.selectbox("Pairs", refs, key="people-ref", width=280)
        if st.button("Compare them", key="people-start", type="primary"):
            with attempted():
                work().start_people(text, ref)
    task_view("people", stamp_of(text, ref), _result)


def agreement_table(rows: Sequence[Mapping[str, Any]], *, key: str) -> None:
    """rows: as `OrderAgreement`."""
    if rows:
        number_table([_row(each) for each in rows], key=key)


def _row(found: Mapping[str, Any]) -> dict[str, str]:
    interval = "–" if found["low"] is None else f"{number_text(found['low'], 3)} to {number_text(found['high'], 3)}"
    return {
        "Reward": literal(found["reward"]),
        "Agrees": count_text(found["agrees"]),
        "Disagrees": count_text(found["disagrees"]),
        "Same value": count_text(found["reward_ties"]),
        "No value": count_text(found["missing"]),
        "People undecided": count_text(found["people_ties"]),
        "Share that agrees": number_text(found["share"], 3),
        "95 % interval": interval,
    }


def _result(data: Any) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.caption(literal(f"{count_text(data['pairs'])} pairs of {data['data']}"), width="content")
        export_button(export_pairs(data), key="pairs-export")
    agreement_table(data["agreement"], key="pairs")
    if data["rows"]:
        st.markdown(f"**{count_text(len(data['rows']))} pairs whose rejected answer gets more**")
    for place, row in enumerate(data["rows"][:_SHOWN]):
        with st.container(border=True, gap="small"):
            for name in ("chosen", "rejected"):
                side = row[name]
                st.caption(literal(f"{name} by people · total {number_text(side['total'])}"))
                model_text(side["text"], key=f"pair-{place}-{name}", limit=600)
                parts(side["parts"])
