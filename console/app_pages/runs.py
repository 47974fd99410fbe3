"""The page Runs: all runs by filter, several at once stopped or resumed, several side by side."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.address import run_query
from console.components.parts import part
from console.components.run_buttons import is_asked, open_asked, show_told
from console.components.run_compare import compare
from console.components.run_filters import filters
from console.components.run_table import table

_EVERY_S = 3


@st.fragment(run_every=_EVERY_S)
def live_table(owners: dict[str, str]) -> None:
    if is_asked() or run_query().compared:
        st.rerun()
    with part("the runs"):
        table(owners)


def page() -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title("Compare runs" if run_query().compared else "Runs")
        st.page_link("app_pages/new_run.py", label="New run")
    with part("the runs"):
        show_told()
        compared = run_query().compared
        if compared:
            compare(compared)
            return
        choices = context.jobs().choices()
        filters(choices)
        open_asked()
        live_table(choices.owners)


page()
