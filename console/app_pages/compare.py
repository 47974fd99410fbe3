"""The page Compare: checkpoints on the same prompts, side by side, with how sure the difference is."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from console import context
from console.components.address import change, words
from console.components.checkpoint_compare import figures, prompt_row
from console.components.dataset_rows import pager
from console.components.parts import empty_state, part
from console.services.checkpoint_compare import CHANGES, MAX_COMPARED, Compared, PanelGroup, by_panel, chosen, compare
from console.services.formats import count_text
from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.records import Evaluation

_ON_A_PAGE = 8
_HOW = (
    "Checkpoints are asked the same frozen prompts by `mmrl checkpoint evaluate RUN@STEP`, or Evaluate on a run's page."
)


def page() -> None:
    st.title("Compare")
    context.viewer()
    with part("the evaluations"):
        panels = by_panel(all_evaluations())
        if not panels:
            empty_state("Nothing was evaluated yet", _HOW)
            st.page_link("app_pages/runs.py", label="Runs")
            return
        group = _panel(panels)
        evaluations = _evaluations(group)
        if len(evaluations) < 2:
            empty_state("Two are needed to compare", f"Choose another one above, or make one. {_HOW}")
            return
        compared = compare(evaluations)
        figures(compared)
        _rows(compared)


def _panel(panels: list[PanelGroup]) -> PanelGroup:
    known = {group.hash: group for group in panels}
    st.session_state["compare-panel"] = words()["panel"] if words().get("panel") in known else panels[0].hash
    st.selectbox(
        "Panel",
        list(known),
        format_func=lambda each: f"{known[each].name} · {count_text(len(known[each].evaluations))} evaluations",
        key="compare-panel",
        on_change=_take("panel", forget=("ids", "page")),
        help="Prompts, settings and seeds that were frozen together, so that all answers to it can be compared.",
    )
    return known[st.session_state["compare-panel"]]


def _evaluations(group: PanelGroup) -> list[Evaluation]:
    known = {evaluation.id: evaluation for evaluation in group.evaluations}
    shown = chosen(group, words().get("ids", "").split(","))
    st.session_state["compare-ids"] = [evaluation.id for evaluation in shown]
    st.multiselect(
        "Checkpoints, the first one as the base",
        list(known),
        format_func=lambda each: known[each].model.label,
        key="compare-ids",
        max_selections=MAX_COMPARED,
        on_change=_take("ids", forget=("page",)),
    )
    return shown


def _rows(compared: Compared) -> None:
    """Those prompts whose change is asked for, of the first evaluation that shows it."""
    present = [change for change in CHANGES if any(change in row.changes for row in compared.rows)]
    st.session_state["compare-only"] = words()["only"] if words().get("only") in present else None
    st.segmented_control(
        "Prompts",
        present,
        format_func=CHANGES.__getitem__,
        key="compare-only",
        on_change=_take("only", forget=("page",)),
    )
    only = st.session_state["compare-only"]
    rows = [row for row in compared.rows if only is None or only in row.changes]
    start = pager("Prompts", key="page", total=len(rows), size=_ON_A_PAGE)
    for number, row in enumerate(rows[start : start + _ON_A_PAGE], start=start):
        prompt_row(compared, row, key=str(number))


def _take(name: str, *, forget: tuple[str, ...] = ()) -> Callable[[], None]:
    """What a widget was set to goes into the address; what no longer means anything goes out of it."""

    def take() -> None:
        value = st.session_state[f"compare-{name}"]
        text = ",".join(value) if isinstance(value, list) else value
        change(**{name: text or None}, **dict.fromkeys(forget))

    return take


page()
