"""Runs side by side: their curves, the settings in which they differ, and where their metrics ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from console import context
from console.components.address import run_query, set_run_query
from console.components.charts import colour_of, run_label
from console.components.parts import part, problem
from console.components.run_curves import curves
from console.components.text import job_link, state_badge
from console.services.comparing import config_differences, final_metrics
from console.services.formats import number_text
from console.services.metric_words import in_groups, words_of
from console.services.runs import state_word
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job

_EVERY_S = 5


def compare(ids: Sequence[str]) -> None:
    st.button(
        "← All runs",
        key="compare-back",
        on_click=lambda: set_run_query(replace(run_query(), compared=())),
        type="tertiary",
    )
    runs = _runs(ids)
    if not runs:
        problem("None of the runs in this address is there. Go back and choose others.")
        return
    is_live = any(not job.is_terminal for job in runs)
    st.fragment(_live, run_every=_EVERY_S if is_live else None)([job.id for job in runs])
    with part("the settings that differ"):
        _differences(runs)


def _live(ids: Sequence[str]) -> None:
    with part("the runs"):
        runs = _runs(ids)
        _legend(runs)
        curves(context.jobs(), runs)
        _finals(runs)


def _runs(ids: Sequence[str]) -> list[Job]:
    """Those that are there; one that is not is named."""
    found = []
    for job_id in ids:
        try:
            found.append(context.jobs().get(job_id))
        except MmrlError as error:
            st.text(str(error))
    return found


def _legend(runs: Sequence[Job]) -> None:
    """Colours are told here, once for all charts."""
    with st.container(horizontal=True, gap="medium", key="compare-legend"):
        for place, job in enumerate(runs):
            with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
                st.markdown(_swatch(place), unsafe_allow_html=True, width="content")
                job_link(job, label=run_label(job))
                state_badge(state_word(job))


def _swatch(place: int) -> str:
    line = "dashed" if place >= 8 else "solid"
    style = f"display:inline-block;width:18px;border-top:3px {line} {colour_of(place)};vertical-align:middle"
    return f'<span style="{style}"></span>'


def _differences(runs: Sequence[Job]) -> None:
    st.subheader("Settings that differ", help="Defaults included, as `mmrl config diff` tells them.")
    found = config_differences(runs)
    for job, why in found.unreadable:
        problem(f"{job.name} {job.short_id}: {why}")
    if len(found.runs) < 2:
        return
    if not found.rows:
        st.text("They have the same settings.")
        return
    frame = pd.DataFrame(
        [[key, *values] for key, values in found.rows.items()],
        columns=["setting", *(run_label(job) for job in found.runs)],
    )
    st.dataframe(frame, key="compare-settings", hide_index=True, alt="Settings that differ between the runs")


def _finals(runs: Sequence[Job]) -> None:
    st.subheader("Final metrics", help="The last value of each metric, and of a running run the last so far.")
    rows = final_metrics(context.jobs(), runs).rows
    if not rows:
        st.text("None of them has metrics.")
        return
    ordered = [key for group in in_groups(list(rows)).values() for key in group]
    frame = pd.DataFrame(
        [[key, *(_final(each) for each in rows[key]), words_of(key).sentence] for key in ordered],
        columns=["metric", *(run_label(job) for job in runs), "meaning"],
    )
    columns = {
        "meaning": st.column_config.TextColumn(width="medium"),
        **{run_label(job): st.column_config.TextColumn(alignment="right") for job in runs},
    }
    st.dataframe(
        frame, key="compare-finals", hide_index=True, column_config=columns, alt="The last value of each metric by run"
    )


def _final(value: tuple[float | None, int] | None) -> str:
    return "–" if value is None else f"{number_text(value[0])}  (step {value[1]})"
