"""The curves of one run or of several, with what is chosen of them: which metrics, over what, how smooth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import streamlit as st

from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.charts import metric_card
from console.components.parts import empty_state
from console.components.text import literal
from console.services.curves import Axis, read_curves
from console.services.metric_words import in_groups
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job

OVERVIEW = "Overview"
MAX_CHARTS = 12
_HEADLINES = (
    ("reward/mean", "rewards/margins"),
    ("rewards/accuracies",),
    ("eval/accuracy", "eval/reward"),
    ("sft/loss", "preference/loss", "reward_model/loss"),
    ("actor/kl_reference", "actor/approx_kl"),
    ("actor/entropy", "actor/entropy_estimate"),
    ("response/length_mean",),
    ("sync/kl",),
    ("perf/tokens_per_s",),
    ("timing_s/step",),
)
_COLUMNS = 3
_SMOOTH = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)


def curves(jobs: JobReads, runs: Sequence[Job]) -> None:
    """The part of a page that shows curves; what is chosen lies in the address."""
    keys = sorted({key for job in runs for key in jobs.metric_keys(job.id)})
    if not keys:
        if all(job.is_terminal for job in runs):
            empty_state("No curves", "It ended before a first step was done and indexed.")
            return
        empty_state(
            "No curves yet", "They appear here, without reloading, as soon as the first step is done and indexed."
        )
        return
    groups = {OVERVIEW: overview_of(keys), **in_groups(keys)}
    _controls(groups, keys)
    chosen, axis, smoothing = _chosen(groups, keys)
    found = read_curves(jobs, runs, chosen[:MAX_CHARTS], axis=axis, smoothing=smoothing)
    for job in found.without_time:
        st.caption(literal(f"{job.name} does not time its steps (timing_s/step), so it is drawn over steps only."))
    shown = list(found.curves)
    for start in range(0, len(shown), _COLUMNS):
        for column, key in zip(st.columns(_COLUMNS), shown[start : start + _COLUMNS], strict=False):
            with column:
                metric_card(key, found.curves[key], runs, axis=axis, smoothing=smoothing)
    if len(chosen) > MAX_CHARTS:
        st.caption(f"{MAX_CHARTS} of {len(chosen)} are drawn; choose others under Metrics.")
    if smoothing:
        st.caption(
            f"Smoothed: an exponential mean over points with weight {smoothing:g}; the values themselves are faint."
        )
    if not smoothing and any(curve.is_thinned for each in found.curves.values() for curve in each):
        st.caption("Each point is a mean over several steps; the band spans their least and largest value.")


def overview_of(keys: Sequence[str]) -> list[str]:
    """What tells most of a run: of each kind of figure the first that it has, or its first metrics of all."""
    found = [next((key for key in each if key in keys), None) for each in _HEADLINES]
    return [key for key in found if key is not None] or list(keys[:6])


def _controls(groups: dict[str, list[str]], keys: Sequence[str]) -> None:
    """Sets each widget to what the address says, so that a reload and a link show the same."""
    given = words()
    show_value("curves-group", given.get("group") if given.get("group") in groups else OVERVIEW)
    show_value("curves-metrics", [key for key in given.get("metric", "").split(",") if key in keys])
    show_value("curves-axis", "time" if given.get("x") == "time" else "step")
    show_value("curves-smooth", _smoothing(given.get("smooth")))
    st.pills(
        "Group",
        list(groups),
        key="curves-group",
        on_change=changed("curves-group", lambda new: change(group=None if new == OVERVIEW else new, metric=None)),
        label_visibility="collapsed",
    )
    with st.container(horizontal=True, vertical_alignment="bottom", key="curves-controls"):
        st.multiselect(
            "Metrics",
            list(keys),
            key="curves-metrics",
            on_change=changed("curves-metrics", lambda new: change(metric=",".join(new))),
            placeholder="those of the group",
            help="Metrics drawn in place of the group's.",
            width=420,
        )
        st.segmented_control(
            "Over",
            ["step", "time"],
            key="curves-axis",
            on_change=changed("curves-axis", lambda new: change(x="time" if new == "time" else None)),
            help="Steps, or hours of running: the seconds of the steps added up, without pauses and lost work.",
        )
        st.selectbox(
            "Smoothing",
            _SMOOTH,
            key="curves-smooth",
            format_func=lambda weight: "off" if not weight else f"{weight:g}",
            on_change=changed("curves-smooth", lambda new: change(smooth=f"{new:g}" if new else None)),
            help="Weight of earlier points in an exponential mean.",
            width=130,
        )


def _chosen(groups: dict[str, list[str]], keys: Sequence[str]) -> tuple[list[str], Axis, float]:
    state = st.session_state
    group = state.get("curves-group") or OVERVIEW
    wanted = state.get("curves-metrics") or groups[group]
    return list(wanted), cast(Axis, state.get("curves-axis") or "step"), float(state["curves-smooth"])


def _smoothing(text: str | None) -> float:
    return next((weight for weight in _SMOOTH if text is not None and f"{weight:g}" == text), 0.0)
