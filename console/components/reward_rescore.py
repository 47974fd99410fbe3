"""A past run's responses under changed rewards: what moves, and what a policy would have learned otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.export_button import export_button
from console.components.long_text import model_text
from console.components.number_table import number_table
from console.components.parts import attempted, empty_state, part
from console.components.reward_task import rewards_area, set_rewards, task_view, work
from console.components.reward_try import parts
from console.components.text import literal
from console.services.formats import count_text, number_text
from console.services.rescore_export import export_rescore
from console.services.responses import Responses
from console.services.reward_work import rewards_text, stamp_of
from console.theme import CHART_COLOURS
from mmrl.errors import NotFoundError
from mmrl.jobs.records import Job
from mmrl.jobs.searching import JobFilter

_MOST_RUNS = 200
_SHOWN_GROUPS = 15
_SHOWN_ROWS = 10


def rescore() -> None:
    job = _job()
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
        task_view("rescore", stamp_of(text, job.id, split, str(first), str(last)), lambda data: _result(job, data))


def _job() -> Job | None:
    jobs = context.jobs()
    runs = {job.id: job for job in jobs.search(JobFilter(kinds=("rl",)), limit=_MOST_RUNS)}
    asked = words().get("run", "")
    if asked and asked not in runs:
        try:
            named = jobs.get(asked)
            runs[named.id], asked = named, named.id
        except NotFoundError:
            asked = ""
    if not runs:
        empty_state("No run yet", "Responses of a run with rewards are scored anew. Start one on New run.")
        return None
    show_value("rescore-run", asked if asked in runs else None)
    st.selectbox(
        "Run",
        list(runs),
        format_func=lambda each: f"{runs[each].name} · {runs[each].state} · {runs[each].short_id}",
        key="rescore-run",
        placeholder="choose a run, the newest first",
        on_change=changed("rescore-run", lambda new: change(run=new, split=None, steps=None)),
    )
    chosen = st.session_state["rescore-run"]
    return runs[chosen] if chosen else None


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


def _result(job: Job, data: Any) -> None:
    skipped = f"; {count_text(data['skipped_groups'])} without their text left out" if data["skipped_groups"] else ""
    where = f"{count_text(data['groups'])} groups of {count_text(len(data['steps']))} steps"
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.caption(f"{count_text(data['responses'])} responses in {where}{skipped}", width="content")
        export_button(export_rescore(job, data), key="rescore-export")
    _figures(data)
    if data["distribution"]:
        _histogram(data["distribution"])
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


def _histogram(found: Mapping[str, Any]) -> None:
    edges = found["edges"]
    bins = list(pairwise(edges))
    rows = [
        {"total": low, "range": f"{low:.3g} to {high:.3g}", "responses": count, "when": when}
        for when in ("before", "after")
        for (low, high), count in zip([*bins, (edges[-1], edges[-1])], [*found[when], 0], strict=True)
    ]
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(aria=False, interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("total:Q", title="total reward", axis=alt.Axis(format="~g", aria=False)),
            y=alt.Y("responses:Q", title="responses", axis=alt.Axis(format=",d", tickMinStep=1, aria=False)),
            color=alt.Color(
                "when:N",
                scale=alt.Scale(domain=["before", "after"], range=[CHART_COLOURS[1], CHART_COLOURS[0]]),
                legend=alt.Legend(title=None, orient="top", aria=False),
            ),
            strokeDash=alt.StrokeDash(
                "when:N", scale=alt.Scale(domain=["before", "after"], range=[[5, 3], [1, 0]]), legend=None
            ),
            tooltip=["when:N", "range:N", "responses:Q"],
        )
        .properties(height=300)
    )
    told = {when: ", ".join(map(str, found[when])) for when in ("before", "after")}
    spec = {name: value for name, value in chart.to_dict().items() if name != "config"}
    alternative = (
        f"Totals in {len(bins)} equal bins from {edges[0]:.3g} to {edges[-1]:.3g}. "
        f"Responses before: {told['before']}. After: {told['after']}."
    )
    st.vega_lite_chart(spec=spec, key="rescore-histogram", alt=alternative)


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
