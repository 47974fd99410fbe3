"""One prompt across all steps: its reward as a chart, and its answers step by step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import streamlit as st

from console.components.address import change
from console.components.dataset_rows import pager
from console.components.long_text import model_text
from console.components.text import literal
from console.services.formats import count_text, number_text
from console.services.prompt_history import HistoryPoint
from console.services.responses import Responses
from console.theme import CHART_COLOURS
from mmrl.runs.records import GroupRecord

_ON_A_PAGE = 6
_MAX_TEXT = 1_200


def over_steps(responses: Responses, split: str, points: Sequence[HistoryPoint]) -> None:
    """points: ascending by step."""
    num = len(points)
    st.caption(f"This prompt came at {count_text(num)} {'step' if num == 1 else 'steps'} whose samples were kept.")
    if any(point.scored for point in points):
        st.caption("Each dot is the reward of a response, stronger where several are equal; the line is their mean.")
        st.vega_lite_chart(_chart(points), key="history-chart", alt=_text_of(points))
    newest = list(reversed(points))
    start = pager("Steps", key="page", total=num, size=_ON_A_PAGE)
    for point in newest[start : start + _ON_A_PAGE]:
        group = responses.group(split, point.step, point.group_id)
        if group is not None:
            _step(point, group)


def _step(point: HistoryPoint, group: GroupRecord) -> None:
    with st.container(border=True, key=f"history-{point.step}", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**Step {point.step}**", width="content")
            mean = "no reward" if point.mean is None else f"mean reward {number_text(point.mean)}"
            num = len(point.rewards)
            told = f"{mean} · {num} {'response' if num == 1 else 'responses'}"
            told += f" · {number_text(point.length_mean, 3)} tokens each"
            st.caption(literal(told), width="content")
            if point.num_truncated:
                st.badge(f"{point.num_truncated} cut at the limit", color="orange")
            st.button(
                "Open",
                key=f"open-step-{point.step}",
                type="tertiary",
                on_click=partial(change, step=str(point.step), group=str(point.group_id), view=None, page=None),
            )
        for place, response in enumerate(group.by_reward, start=1):
            reward = "no reward" if response.reward is None else f"reward {number_text(response.reward)}"
            st.caption(literal(f"{place}. {reward}"))
            if response.text is None:
                st.text("Only the numbers of this response were kept.")
            else:
                model_text(response.text, key=f"history-{point.step}-{response.sample_idx}", limit=_MAX_TEXT)


def _chart(points: Sequence[HistoryPoint]) -> dict[str, Any]:
    """Each response a point, the mean a line. What it says stands in its text alternative."""
    rows = [{"step": point.step, "reward": reward} for point in points for reward in point.scored]
    means = [{"step": point.step, "mean": point.mean} for point in points if point.mean is not None]
    x = alt.X("step:Q", title="step", axis=alt.Axis(format=",d", tickMinStep=1, aria=False))
    axis_of_y = alt.Axis(format=",.4~g", tickCount=4, aria=False)

    def y_of(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="reward", scale=alt.Scale(zero=False), axis=axis_of_y)

    dots = (
        alt.Chart(alt.Data(values=rows))
        .mark_circle(aria=False, size=36, opacity=0.45, color=CHART_COLOURS[1])
        .encode(x=x, y=y_of("reward"), tooltip=["step:Q", alt.Tooltip("reward:Q", format=".5g")])
    )
    line = (
        alt.Chart(alt.Data(values=means))
        .mark_line(aria=False, strokeWidth=1.8, color=CHART_COLOURS[0], point=True)
        .encode(x=x, y=y_of("mean"), tooltip=["step:Q", alt.Tooltip("mean:Q", format=".5g")])
    )
    made: dict[str, Any] = alt.layer(dots, line).properties(height=220).to_dict()
    return {name: value for name, value in made.items() if name != "config"}


def _text_of(points: Sequence[HistoryPoint]) -> str:
    scored = [(point.step, point.mean) for point in points if point.mean is not None]
    (first, before), (last, after) = scored[0], scored[-1]
    return (
        f"Mean reward of this prompt: {number_text(before)} at step {first}, {number_text(after)} at step {last}. Each "
        "dot is a response, the line is their mean."
    )
