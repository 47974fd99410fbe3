"""A small curve beside a number: which way it goes, without axes."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import streamlit as st

from console.services.formats import number_text
from console.theme import CHART_COLOURS

_HEIGHT = 44


def spark(values: Sequence[float], *, name: str, key: str) -> None:
    """name: of the metric, for those who hear the page. Fewer than two values are no curve."""
    if len(values) < 2:
        return
    rows = [{"place": place, "value": value} for place, value in enumerate(values)]
    low, high = min(values), max(values)
    room = (high - low) * 0.1 or 1.0
    chart = (
        alt.Chart(alt.Data(values=rows), height=_HEIGHT, padding={"left": 0, "right": 0, "top": 2, "bottom": 2})
        .mark_line(strokeWidth=1.8, color=CHART_COLOURS[0], interpolate="monotone", aria=False)
        .encode(
            x=alt.X("place:Q", axis=None),
            y=alt.Y("value:Q", axis=None, scale=alt.Scale(domain=[low - room, high + room])),
        )
        .configure_view(strokeWidth=0)
    )
    told = f"{name}: from {number_text(values[0])} to {number_text(values[-1])}"
    st.altair_chart(chart, key=key, alt=f"{told}, between {number_text(low)} and {number_text(high)}")
