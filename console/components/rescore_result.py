"""What changed rewards move in a past run: figures, totals and parts, and the groups and responses that moved most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from console.components.export_button import export_button
from console.components.long_text import model_text
from console.components.number_table import number_table
from console.components.rescore_chart import histogram
from console.components.reward_try import parts
from console.components.text import literal
from console.services.formats import count_text, number_text
from console.services.rescore_export import export_rescore
from mmrl.jobs.records import Job

_SHOWN_GROUPS = 15
_SHOWN_ROWS = 10


def rescore_result(job: Job, data: Any) -> None:
    """data: as `mmrl reward rescore --json` gives it."""
    skipped = f"; {count_text(data['skipped_groups'])} without their text left out" if data["skipped_groups"] else ""
    where = f"{count_text(data['groups'])} groups of {count_text(len(data['steps']))} steps"
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.caption(f"{count_text(data['responses'])} responses in {where}{skipped}", width="content")
        export_button(export_rescore(job, data), key="rescore-export")
    _figures(data)
    if data["distribution"]:
        histogram(data["distribution"])
    asked = {when: _asked(data["rows"], when) for when in ("before", "after")}
    number_table([_moved(data["total"], {}), *(_moved(each, asked) for each in data["parts"])], key="moved")
    _groups(job, data["split"], data["moved_groups"])
    _rows(job, data["split"], data["rows"])


def _figures(data: Mapping[str, Any]) -> None:
    figures = (
        ("Rank correlation", number_text(data["rank_correlation"], 3), "Spearman's, of totals before and after."),
        (
            "Pairs in another order",
            f"{count_text(data['pairs_swapped'])} of {count_text(data['pairs'])}",
            "Of two responses of one group with different totals before and after.",
        ),
        (
            "Another best response",
            f"{count_text(data['best_changed'])} of {count_text(data['groups'])}",
            "Groups whose best response is another one now.",
        ),
        (
            "Advantages that flip",
            f"{count_text(data['flips_to_positive'])} up, {count_text(data['flips_to_negative'])} down",
            "Responses that would be pushed the other way: the total less its group's mean changes its sign.",
        ),
        (
            "Spread of groups",
            f"{count_text(data['gained_spread'])} gain, {count_text(data['lost_spread'])} lose",
            "Groups that teach something now, and those that teach nothing any more since all totals are equal.",
        ),
    )
    with st.container(horizontal=True, key="figures"):
        for label, value, told in figures:
            st.metric(label, value, help=told, border=True)


def _asked(rows: Sequence[Mapping[str, Any]], when: str) -> set[str]:
    """Names of the rewards that gave some response a part then, be it that they failed."""
    return {part["name"] for row in rows for part in row[f"parts_{when}"]}


def _moved(found: Mapping[str, Any], asked: Mapping[str, set[str]]) -> dict[str, str]:
    """asked: the rewards before and after; empty for the total, which is always asked for."""
    missing = {
        when: "not asked"
        if asked.get(when) and found["name"] not in asked[when]
        else count_text(found[f"missing_{when}"])
        for when in ("before", "after")
    }
    return {
        "Value": literal(found["name"]),
        "Mean before": number_text(found["mean_before"]),
        "Mean after": number_text(found["mean_after"]),
        "Rose": count_text(found["up"]),
        "Fell": count_text(found["down"]),
        "Missing before": missing["before"],
        "Missing after": missing["after"],
    }


def _groups(job: Job, split: str, groups: Sequence[Mapping[str, Any]]) -> None:
    if not groups:
        st.caption("No group changes its order, its best response or its spread.")
        return
    st.subheader("Groups that moved", help="Those with most pairs of responses in another order come first.")
    with st.container(border=True, gap="xsmall", key="moved-groups"):
        for group in groups[:_SHOWN_GROUPS]:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _link(job, split, group["step"], group["group_id"])
                st.caption(literal(_group_text(group)), width="content")


def _group_text(group: Mapping[str, Any]) -> str:
    told = [f"{count_text(group['swapped'])} of {count_text(group['pairs'])} pairs turned"] if group["pairs"] else []
    told += ["another best response"] if group["is_best_changed"] else []
    spread = {"gained": "teaches something now", "lost": "teaches nothing any more"}.get(group["spread"] or "")
    return ", ".join([*told, *([spread] if spread else [])])


def _rows(job: Job, split: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    st.subheader(
        "Responses that moved most", help="First those whose advantage flips, each by how far its total moved."
    )
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        alike.setdefault((row["text"], row["total_before"], row["total_after"], row["flips"]), []).append(row)
    for place, (row, *others) in enumerate(list(alike.values())[:_SHOWN_ROWS]):
        with st.container(border=True, gap="xsmall", key=f"moved-{place}"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _link(job, split, row["step"], row["group_id"])
                totals = f"{number_text(row['total_before'])} → {number_text(row['total_after'])}"
                st.markdown(f"response {row['sample_idx']} · total **{literal(totals)}**", width="content")
                if row["flips"]:
                    st.badge("advantage flips", color="orange")
            model_text(row["text"], key=f"moved-text-{place}", limit=1500)
            if others:
                st.caption(f"{count_text(len(others))} more with this very text moved alike.")
            for column, when in zip(st.columns(2), ("before", "after"), strict=True):
                with column, st.container(gap=None):
                    st.caption(when)
                    parts(row[f"parts_{when}"])


def _link(job: Job, split: str, step: int, group_id: int) -> None:
    st.page_link(
        "app_pages/responses.py",
        label=f"step {step}, group {group_id}",
        query_params={"run": job.id, "split": split, "step": str(step), "group": str(group_id)},
    )
