"""The address of the page, in which everything lies that a reload must not lose."""

from __future__ import annotations

import streamlit as st

from console.services.runs import RunQuery


def words() -> dict[str, str]:
    """The query of the address; of a name that is given twice the last."""
    return {name: str(value) for name, value in st.query_params.to_dict().items()}


def change(**values: str | None) -> None:
    """Sets names of the query; None takes one out. The others stay."""
    for name, value in values.items():
        if value:
            st.query_params[name] = value
        elif name in st.query_params:
            del st.query_params[name]


def run_query() -> RunQuery:
    return RunQuery.of_address(words())


def set_run_query(query: RunQuery) -> None:
    """What the page Runs shows; names that are no part of its query, such as the metrics compared, stay."""
    wanted = query.address()
    change(**{name: wanted.get(name) for name in RunQuery.NAMES})
