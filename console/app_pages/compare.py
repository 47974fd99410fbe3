"""The page Compare: checkpoints on the same prompts, side by side, with how sure the difference is."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.ask_checkpoints import ask_checkpoints, watch_asked
from console.components.changes import changed
from console.components.checkpoint_compare import figures, prompt_row
from console.components.dataset_rows import pager
from console.components.export_button import export_button
from console.components.long_text import text_style
from console.components.parts import empty_state, part
from console.services.checkpoint_compare import (
    CHANGES,
    CHANGES_TOLD,
    MAX_COMPARED,
    Compared,
    PanelGroup,
    by_panel,
    chosen,
    compare,
    label_of,
)
from console.services.compare_export import export_comparison
from console.services.formats import count_text
from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.records import Evaluation

_ON_A_PAGE = 8
_HOW = "Ask checkpoints the same prompts, below or by `mmrl checkpoint evaluate RUN@STEP`."
_NONE = (
    "No panel was asked yet",
    "A panel is prompts, settings and seeds, frozen so that the answers of several checkpoints can be compared. What a "
    "run evaluates by itself while it trains is no panel: it stands on the run's page, under Curves and Samples. "
    f"{_HOW}",
)
_ONE = ("Two are needed to compare", f"Choose another one above, or make one. {_HOW}")


def page() -> None:
    st.title("Compare")
    context.viewer()
    with part("the evaluations"):
        text_style()
        panels = by_panel(all_evaluations())
        group = _panel(panels) if panels else None
        evaluations = _evaluations(group) if group else []
        watch_asked(words().get("asked"))
        if len(evaluations) < 2:
            empty_state(*(_ONE if group else _NONE))
            ask_checkpoints(group)
            return
        with st.expander("Ask more checkpoints", key="ask-more"):
            ask_checkpoints(group)
        compared = compare(evaluations)
        figures(compared)
        _rows(compared)


def _panel(panels: list[PanelGroup]) -> PanelGroup:
    """That of the address, else the one whose answers were asked for last, else the one with most of them."""
    known = {group.hash: group for group in panels}
    asked = next((group.hash for group in panels if group.name == words().get("asked")), panels[0].hash)
    show_value("compare-panel", words()["panel"] if words().get("panel") in known else asked)
    st.selectbox(
        "Panel",
        list(known),
        format_func=lambda each: f"{known[each].name} · {_num(known[each])} · {_how(known[each])}",
        key="compare-panel",
        on_change=_take("panel", forget=("ids", "page", "only")),
        help="Prompts, settings and seeds that were frozen together, so that all answers to it can be compared.",
    )
    return known[st.session_state["compare-panel"]]


def _num(group: PanelGroup) -> str:
    num = len(group.evaluations)
    return f"{count_text(num)} {'evaluation' if num == 1 else 'evaluations'}"


def _how(group: PanelGroup) -> str:
    settings = group.evaluations[0].settings
    if settings.temperature == 0:
        return "greedy"
    return f"{settings.samples_per_prompt} sampled at temperature {settings.temperature:g}"


def _evaluations(group: PanelGroup) -> list[Evaluation]:
    known = {evaluation.id: evaluation for evaluation in group.evaluations}
    shown = chosen(group, words().get("ids", "").split(","))
    show_value("compare-ids", [evaluation.id for evaluation in shown])
    st.multiselect(
        "Checkpoints, the first one as the base",
        sorted(known, key=lambda each: (known[each].model.run or "", known[each].model.step or 0)),
        format_func=lambda each: label_of(known[each]),
        key="compare-ids",
        max_selections=MAX_COMPARED,
        on_change=_take("ids", forget=("page",)),
    )
    return shown


def _rows(compared: Compared) -> None:
    """Those prompts whose change is asked for, of the first evaluation that shows it."""
    present = [change for change in CHANGES if any(change in row.changes for row in compared.rows)]
    show_value("compare-only", words()["only"] if words().get("only") in present else None)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.segmented_control(
            "Prompts",
            present,
            format_func=CHANGES.__getitem__,
            key="compare-only",
            on_change=_take("only", forget=("page",)),
            help=CHANGES_TOLD,
        )
        only = st.session_state["compare-only"]
        rows = [row for row in compared.rows if only is None or only in row.changes]
        export_button(export_comparison(compared, rows, only=only))
    start = pager("Prompts", key="page", total=len(rows), size=_ON_A_PAGE)
    for number, row in enumerate(rows[start : start + _ON_A_PAGE], start=start):
        prompt_row(compared, row, key=str(number))


def _take(name: str, *, forget: tuple[str, ...] = ()) -> Callable[[], None]:
    """What a widget was set to goes into the address; what no longer means anything goes out of it."""

    def store(value: str | list[str] | None) -> None:
        text = ",".join(value) if isinstance(value, list) else value
        change(**{name: text or None}, **dict.fromkeys(forget))

    return changed(f"compare-{name}", store)


page()
