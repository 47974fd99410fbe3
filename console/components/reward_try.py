"""Rewards tried on real rows: each answered rightly and wrongly, and what each part says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import streamlit as st

from console import context
from console.components.dataset_rows import pager
from console.components.export_button import export_button
from console.components.long_text import model_text
from console.components.number_table import number_table
from console.components.parts import attempted, empty_state, problem
from console.components.reward_task import rewards_area, task_view, work
from console.components.text import literal, shown
from console.services.datasets import Catalogued
from console.services.formats import count_text, number_text
from console.services.reward_export import export_try
from console.services.reward_work import MAX_ROWS, stamp_of
from mmrl.data.layout import DEFAULT_SPLIT

_ON_A_PAGE = 5
_MOST_PROBLEMS = 10


def try_out(default: str) -> None:
    refs = dataset_refs()
    if not refs:
        empty_state("No data set yet", "Rewards are tried on its rows. Add one on the page Data sets.")
        return
    text = rewards_area("try", default)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        ref = st.selectbox("Data", refs, key="try-ref", width=280)
        num_rows = int(st.number_input("Rows", 1, MAX_ROWS, 12, key="try-rows", width=110))
        if st.button("Try them", key="try-start", type="primary"):
            with attempted():
                work().start_try(text, ref, num_rows)
    task_view("try", stamp_of(text, ref, str(num_rows)), _result)


def dataset_refs() -> list[str]:
    """NAME@SPLIT of all whose files are there, the training split of each first."""
    found = [each for each in Catalogued(context.catalogue(), context.viewer()).all() if each.state == "valid"]
    names = [(each.name, split.name != DEFAULT_SPLIT, split.name) for each in found for split in each.splits]
    return [f"{name}@{split}" for name, _, split in sorted(names)]


def _result(data: Any) -> None:
    summaries = data["probes"]
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        told = f"{count_text(data['samples'])} rows of {data['data']}, each answered in several ways"
        st.caption(literal(told), width="content")
        export_button(export_try(data), key="try-export")
    number_table([_summary(each) for each in summaries], key="tried")
    if data["problems"]:
        with st.container(border=True, key="try-problems"):
            st.markdown(f"**{count_text(len(data['problems']))} problems**")
            for text in data["problems"][:_MOST_PROBLEMS]:
                st.text(shown(text, most=600))
    else:
        st.caption("Each reference scores more than a wrong answer, and nothing failed.")
    _rows(data["responses"])


def _summary(probe: Mapping[str, Any]) -> dict[str, str]:
    parts = {literal(name): number_text(value) for name, value in probe["part_means"].items()}
    failed = sum(probe["failures"].values())
    return {
        "Answered with": literal(probe["probe"]),
        "Tried": count_text(probe["responses"]),
        "Mean total": number_text(probe["mean"]),
        **parts,
        "Failed": count_text(failed),
    }


def _rows(responses: Sequence[Mapping[str, Any]]) -> None:
    samples = [(key, list(rows)) for key, rows in groupby(responses, key=lambda row: row["sample"])]
    start = pager("Rows", key="row", total=len(samples), size=_ON_A_PAGE)
    for sample, rows in samples[start : start + _ON_A_PAGE]:
        with st.container(border=True, key=f"tried-{sample}", gap="small"):
            st.caption(literal(f"Row {sample}"))
            answer = rows[0]["answer"]
            model_text(
                "No reference answer" if answer is None else f"Reference: {answer}",
                key=f"tried-{sample}-answer",
                limit=600,
            )
            for number, row in enumerate(rows):
                with st.container(gap="xxsmall"):
                    st.caption(literal(f"{row['probe']} · total {number_text(row['total'])}"))
                    model_text(row["response"], key=f"tried-{sample}-{number}", limit=600)
                    parts(row["parts"])


def parts(found: Sequence[Mapping[str, Any]]) -> None:
    """A line a part: its value, and why."""
    for each in found:
        told = f"{each['name']} {number_text(each['value'])}"
        why = each.get("explanation") or ""
        if each.get("error"):
            problem(f"{told}: failed: {shown(each['error'], most=600)}")
        elif why:
            st.caption(literal(f"{told}: {shown(why, most=600)}"))
        else:
            st.caption(literal(told))
