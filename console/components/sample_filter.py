"""The filter of the page Responses, all of it in the address, and the callbacks that put it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import streamlit as st

from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import problem
from console.services.group_filter import ONLY, GroupFilter

_FORGET = ("split", "step", "steps", "find", "only", "part", "low", "high")


def show_filter(wanted: GroupFilter, parts: Sequence[str]) -> None:
    """parts: the rewards that a range may be asked of, `total` among them."""
    for name in ("find", "only", "part"):
        show_value(f"responses-{name}", getattr(wanted, name) or ("" if name == "find" else None))
    for name in ("low", "high"):
        show_value(f"responses-{name}", getattr(wanted, name))
    if wanted.part not in parts:
        show_value("responses-part", None)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="responses-filter"):
        placeholder = "text of prompt or response"
        st.text_input("Search", key="responses-find", placeholder=placeholder, width=260, on_change=take("find"))
        st.selectbox(
            "Groups",
            list(ONLY),
            format_func=lambda word: ONLY[word],
            key="responses-only",
            placeholder="any",
            width=230,
            on_change=take("only"),
        )
        st.selectbox("Reward", parts, key="responses-part", placeholder="any", width=160, on_change=take("part"))
        if wanted.part is not None:
            st.number_input("from", key="responses-low", value=None, width=120, on_change=take("low"))
            st.number_input("to", key="responses-high", value=None, width=120, on_change=take("high"))
        if any(words().get(name) for name in GroupFilter.NAMES):
            st.button("Clear", key="responses-clear", on_click=clear_filter, help="Shows every group again.")
    if told := not_understood(words(), wanted, parts):
        problem(told)
    if wanted.only in _MEANING:
        st.caption(_MEANING[wanted.only])


_MEANING = {
    "disagree": "Parts disagree where one part puts a response above another one and a second part puts it below.",
}


def not_understood(given: Mapping[str, str], wanted: GroupFilter, parts: Sequence[str]) -> str:
    """What the address asks for that is not there, as sentences; empty where all of it is. given: its words."""
    told = []
    if (only := given.get("only")) and only != wanted.only:
        told.append(f"The address asks for groups that are {only!r}, which counts for nothing: {_one_of(ONLY)}.")
    for name in ("low", "high"):
        if given.get(name) and getattr(wanted, name) is None:
            told.append(f"The address asks for {name} {given[name]!r}, which is no number and counts for nothing.")
    if wanted.part is not None and wanted.part not in parts:
        told.append(
            f"The address asks for the reward {wanted.part!r}, which is not known here, and only a response with a "
            f"value of that name fits a range of it: {_one_of(parts)}."
        )
    return " ".join(told)


def _one_of(known: Iterable[str]) -> str:
    return f"choose among {', '.join(known)}, or Clear"


def clear_filter() -> None:
    change(group=None, page=None, after=None, **dict.fromkeys(GroupFilter.NAMES))


def take(name: str) -> Callable[[], None]:
    """What a widget was set to goes into the address, and what it makes meaningless out of it."""

    def store(value: object) -> None:
        forgotten = ("group", "page", "after", *(("step",) if name == "split" else ())) if name in _FORGET else ()
        change(**dict.fromkeys(forgotten), **{name: None if value in (None, "") else str(value)})

    return changed(f"responses-{name}", store)
