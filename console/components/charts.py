"""Curves drawn with Altair: one chart a metric, a line a run, the band of what a point stands for behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt
import streamlit as st

from console.components.text import literal
from console.services.curves import Axis, Curve
from console.services.formats import number_text
from console.services.metric_words import words_of
from console.theme import CHART_COLOURS
from mmrl.jobs.records import Job

_HEIGHT = 190
_FEW = 12
_AXES: Mapping[Axis, str] = {"step": "step", "time": "hours of running"}


def run_label(job: Job) -> str:
    """Tells runs of one name apart."""
    return f"{job.name} · {job.short_id}"


def colour_of(place: int) -> str:
    return CHART_COLOURS[place % len(CHART_COLOURS)]


def metric_card(key: str, curves: Sequence[Curve], runs: Sequence[Job], *, axis: Axis, smoothing: float) -> None:
    """A metric with what it means, where it stands, and its curves. runs: all that the page draws, for colours."""
    words = words_of(key)
    places = {job.id: place for place, job in enumerate(runs)}
    rows = [row for curve in curves for row in _rows(curve, places[curve.job.id])]
    with st.container(border=True, key=f"chart-{_plain(key)}", gap="xsmall"):
        st.markdown(f"**{literal(key)}**", help=literal(words.sentence))
        if len(runs) == 1:
            last = curves[0].last
            unit = "" if words.unit in ("", "share") else f" {words.unit}"
            told = "no value yet" if last is None else f"{number_text(last.value)}{unit} at step {last.step}"
            st.caption(literal(told))
        st.vega_lite_chart(
            spec={
                **_spec(axis, bool(smoothing), _is_band(curves), words.unit, len(runs) > 1),
                "data": {"values": rows},
            },
            key=f"curve-{_plain(key)}",
            alt=_text_of(key, curves),
        )


def _is_band(curves: Sequence[Curve]) -> bool:
    return any(curve.is_thinned for curve in curves)


@cache
def _spec(axis: Axis, is_smooth: bool, is_band: bool, unit: str, is_several: bool) -> dict[str, Any]:
    """The chart without its data: Altair takes a hundred times longer to make it than to be given other values.

    Its parts have no roles of their own; what it says stands in its text alternative.
    """
    base = alt.Chart(alt.Data(values=[])).encode(
        x=alt.X("x:Q", title=_AXES[axis], axis=_x_axis(axis)),
        color=alt.Color("colour:N", scale=None, legend=None),
        detail="run:N",
        order="x:Q",
    )

    def y_of(field: str) -> alt.Y:
        """The same for all layers, which share the axis."""
        axis_of_y = alt.Axis(format=",.4~g", tickCount=4, aria=False)
        return alt.Y(f"{field}:Q", title=unit or None, scale=alt.Scale(zero=False), axis=axis_of_y)

    tooltip = [
        *([alt.Tooltip("run:N")] if is_several else []),
        alt.Tooltip("step:Q"),
        alt.Tooltip("value:Q", format=".5g"),
        *([alt.Tooltip("smooth:Q", format=".5g", title="smoothed")] if is_smooth else []),
    ]
    layers: list[Any] = []
    if is_band and not is_smooth:
        layers.append(
            base.mark_area(aria=False, opacity=0.18, invalid="break-paths-filter-domains").encode(
                y=y_of("low"), y2="high:Q"
            )
        )
    if is_smooth:
        layers.append(base.mark_line(aria=False, opacity=0.25, strokeWidth=1).encode(y=y_of("value")))
    dash = alt.StrokeDash("dash:N", scale=alt.Scale(domain=[0, 1], range=[[1, 0], [5, 3]]), legend=None)
    layers.append(
        base.mark_line(aria=False, strokeWidth=1.8).encode(y=y_of("smooth"), strokeDash=dash, tooltip=tooltip)
    )
    points = base.transform_filter("datum.is_marked").mark_point(aria=False, size=22, filled=True)
    layers.append(points.encode(y=y_of("smooth"), tooltip=tooltip))
    made: dict[str, Any] = alt.layer(*layers).properties(height=_HEIGHT).to_dict()
    return {name: value for name, value in made.items() if name not in ("data", "datasets", "config")}


def _x_axis(axis: Axis) -> alt.Axis:
    if axis == "step":
        return alt.Axis(format=",d", tickMinStep=1, aria=False)
    return alt.Axis(format="~g", aria=False)


def _rows(curve: Curve, place: int) -> list[dict[str, Any]]:
    """Points without a value stay in, so that the line breaks there; one between two of those is marked by itself."""
    points = curve.points
    num_values = sum(point.value is not None for point in points)
    values = [None, *(point.value for point in points), None]
    return [
        {
            "x": point.x,
            "step": point.step,
            "value": point.value,
            "smooth": point.smooth,
            "low": point.low,
            "high": point.high,
            "run": run_label(curve.job),
            "colour": colour_of(place),
            "dash": place // len(CHART_COLOURS) % 2,
            "is_marked": point.value is not None
            and (num_values <= _FEW or (values[index] is None and values[index + 2] is None)),
        }
        for index, point in enumerate(points)
    ]


def _text_of(key: str, curves: Sequence[Curve]) -> str:
    """What the chart says, for those who do not see it."""
    told = []
    for curve in curves:
        values = [point.value for point in curve.points if point.value is not None]
        if values and curve.last is not None:
            told.append(
                f"{run_label(curve.job)} from {number_text(values[0])} to {number_text(values[-1])} at step "
                f"{curve.last.step}, between {number_text(min(values))} and {number_text(max(values))}"
            )
    return f"{key}: {'; '.join(told) or 'no values'}"


def _plain(key: str) -> str:
    """A metric's name as part of a key of the page."""
    return "".join(letter if letter.isalnum() else "-" for letter in key)
