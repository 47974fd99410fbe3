"""The filters of the page Runs. Each shows what the address says, and writes what is chosen there."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from console.components.address import run_query, set_run_query, show_value
from console.services.runs import AGES_S, RunQuery
from mmrl.jobs.searching import JobChoices
from mmrl.jobs.states import JobState

_AGES = {"1h": "the last hour", "1d": "the last day", "7d": "the last 7 days", "30d": "the last 30 days"}


def filters(choices: JobChoices) -> None:
    query = run_query()
    shown: dict[str, object] = {"q": query.text, "state": list(query.states), "tag": list(query.tags)}
    shown |= {"kind": query.kind, "pool": query.pool, "owner": query.owner, "age": query.age}
    for name, value in shown.items():
        show_value(f"filter-{name}", value)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="runs-filters"):
        st.text_input(
            "Search",
            key="filter-q",
            placeholder="name, id, note, tag or error",
            on_change=_changed,
            width=215,
        )
        st.multiselect(
            "State",
            list(JobState),
            key="filter-state",
            on_change=_changed,
            format_func=str,
            width=190,
            placeholder="any",
        )
        _one_of("Kind", "filter-kind", choices.kinds, query.kind)
        if choices.tags or query.tags:
            tags = sorted({*choices.tags, *query.tags})
            st.multiselect("Tags", tags, key="filter-tag", on_change=_changed, width=160, placeholder="any")
        _one_of("Age", "filter-age", tuple(AGES_S), query.age, names=_AGES, width=165)
        if len(choices.pools) > 1 or query.pool:
            _one_of("Pool", "filter-pool", choices.pools, query.pool)
        if len(choices.owners) > 1 or query.owner:
            _one_of("Owner", "filter-owner", tuple(choices.owners), query.owner, names=choices.owners)


def _one_of(
    label: str,
    key: str,
    options: tuple[str, ...],
    chosen: str | None,
    *,
    names: dict[str, str] | None = None,
    width: int = 120,
) -> None:
    """A choice of one or any; what the address names is among the options though no run has it."""
    known = options if chosen is None or chosen in options else (*options, chosen)
    st.selectbox(
        label,
        known,
        key=key,
        on_change=_changed,
        placeholder="any",
        format_func=lambda word: (names or {}).get(word, word),
        width=width,
    )


def _changed() -> None:
    """A new filter begins at its first page; what was chosen stays chosen."""
    state = st.session_state.to_dict()  # as a whole: see `changes`
    query = run_query()
    set_run_query(
        replace(
            RunQuery(picked=query.picked, compared=query.compared),
            text=state["filter-q"] or "",
            states=tuple(JobState(word) for word in state["filter-state"]),
            kind=state["filter-kind"],
            tags=tuple(state.get("filter-tag", query.tags)),
            pool=state.get("filter-pool", query.pool),
            owner=state.get("filter-owner", query.owner),
            age=state["filter-age"],
        )
    )
