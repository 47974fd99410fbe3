"""How the totals of a run's responses are distributed before and after their rewards were changed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import altair as alt
import streamlit as st

from console.theme import CHART_COLOURS


def histogram(found: Mapping[str, Any]) -> None:
    """found: counts `before` and `after` of equal bins between `edges`."""
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
