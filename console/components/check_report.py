"""What a check of data found, for whoever brought it: first what is wrong, then where, then what to do."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

import altair as alt
import streamlit as st

from console.components.dataset_rows import pager
from console.components.text import literal
from console.services.checking import BadRow, Report
from console.services.formats import counted, number_text
from console.theme import CHART_COLOURS

ROWS_A_PAGE = 50
_NUM_WARNINGS = 20
_MEASURES = {
    ("prompt_characters",): "Prompt, characters",
    ("turns",): "Turns of a row",
    ("images", "width"): "Image width, pixels",
    ("images", "height"): "Image height, pixels",
    ("answers", "characters"): "Answer, characters",
}
_COLUMNS: Mapping[str, Callable[[BadRow], object]] = {
    "File": lambda row: row.file,
    "Row": lambda row: row.row,
    "Field": lambda row: row.field,
    "What is wrong": lambda row: row.wrong,
    "How to mend it": lambda row: row.mend,
}
_FIGURES = {"min": "Smallest", "p05": "5 %", "median": "Median", "mean": "Mean", "p95": "95 %", "max": "Largest"}


def verdict(report: Report) -> None:
    """What is wrong, in one sentence."""
    with st.container(key="verdict"):
        if report.is_sound:
            st.success(literal(report.sentence))
        elif report.can_keep_good_rows:
            st.warning(literal(report.sentence))
        else:
            st.error(literal(report.sentence))
    if report.failure is not None:
        st.text(report.failure)


def bad_rows(report: Report) -> None:
    """Every row that cannot be used, a page at a time, and all of them as a file."""
    if not report.bad:
        return
    st.subheader("Rows that cannot be used")
    start = pager("Rows", key="bad", total=len(report.bad), size=ROWS_A_PAGE)
    shown = report.bad[start : start + ROWS_A_PAGE]
    with st.container(key="bad_rows"):
        st.table({head: [literal(cell(row)) for row in shown] for head, cell in _COLUMNS.items()})
    st.download_button(
        "All of them as CSV",
        _csv(report),
        file_name="rows-to-mend.csv",
        mime="text/csv",
        on_click="ignore",
        key="bad_rows_csv",
    )


def warnings(report: Report) -> None:
    """What is not wrong but looks like a slip."""
    if not report.warnings:
        return
    st.subheader("Worth a look", help="These rows are used as they are; each of these is often a slip.")
    for text in report.warnings[:_NUM_WARNINGS]:
        st.text(f"•  {text}")
    if len(report.warnings) > _NUM_WARNINGS:
        st.caption(f"and {len(report.warnings) - _NUM_WARNINGS} more")


def statistics(values: Mapping[str, Any]) -> None:
    """How lengths, sizes and answers are distributed."""
    rows = [
        {"measure": name} | {column: number_text(summary[key], 3) for key, column in _FIGURES.items()}
        for path, name in _MEASURES.items()
        if (summary := _at(values, path)) is not None
    ]
    table, answers = st.columns([3, 2], gap="large")
    with table:
        st.markdown("**Lengths and sizes**")
        st.table({"": [row["measure"] for row in rows]} | {c: [row[c] for row in rows] for c in _FIGURES.values()})
        per_row = values["images"]["per_row"]
        counts = ", ".join(f"{number} in {counted(rows, 'row')}" for number, rows in per_row.items())
        st.text(f"Images of a row: {counts}")
    with answers:
        _answers(values["answers"])


def _answers(values: Mapping[str, Any]) -> None:
    least = "at least " if values["distinct_is_a_lower_bound"] else ""
    st.markdown("**Commonest answers**")
    st.caption(
        f"{least}{counted(values['distinct'], 'different answer')}; without one: {counted(values['missing'], 'row')}"
    )
    common: dict[str, int] = dict(list(values["most_common"].items())[:12])
    if not common:
        return
    rows = [{"answer": answer[:40] or "(empty)", "rows": number} for answer, number in common.items()]
    chart = (
        alt.Chart(alt.Data(values=rows), height=22 * len(rows) + 70)
        .mark_bar(color=CHART_COLOURS[0], aria=False)
        .encode(
            y=alt.Y("answer:N", sort=None, title=None, axis=alt.Axis(labelLimit=200, labelOverlap=False)),
            x=alt.X("rows:Q", title="rows", axis=alt.Axis(tickMinStep=1, format=",d")),
        )
    )
    told = ", ".join(
        f"{answer[:40] or '(empty)'} in {counted(number, 'row')}" for answer, number in [*common.items()][:5]
    )
    st.altair_chart(chart, key="common_answers", alt=f"Commonest answers: {told}")


def _at(values: Any, path: tuple[str, ...]) -> Mapping[str, float] | None:
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _cells(row: BadRow) -> dict[str, Any]:
    return {"file": row.file, "row": row.row, "field": row.field, "wrong": row.wrong, "mend": row.mend}


def _csv(report: Report) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["file", "row", "field", "wrong", "mend"])
    writer.writeheader()
    writer.writerows(_cells(row) for row in report.bad)
    return buffer.getvalue()
