"""The address of the page, in which everything lies that a reload must not lose.

A browser takes over an address a moment after it was written, and says with each change which one it has. A second
change that is quicker than that comes with the old address and would undo the first one. So what was written is kept in
the session until the browser has it, and counts meanwhile. Back, forward and links count at once.

A link from a page to the same page asks for its address and leaves the browser's own as it was: the next change there
would come with that one. So the browser is told the address of the link, see `keep_address`.

Nothing here gives way to a rerun that waits before a change is kept (see `changes`): callbacks call it too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from console.services.runs import RunQuery

Query = dict[str, str]
_KEY = "written_address"
_LATE_S = 30.0
"""A browser that has not taken over an address after so long was led elsewhere."""


@dataclass
class _Written:
    """queries: what the browser may hold, each whole, the last written last. page: by Streamlit's hash, since the same
    words mean something else on another one. run: of the script, in which it was written last. shown: what the page
    stood for last; None before the first run."""

    page: str = ""
    shown: Query | None = None
    run: object = None
    at: float = 0.0
    queries: list[Query] = field(default_factory=list)


def words() -> Query:
    """The query of the address; of a name that is given twice the last."""
    held = _held()
    written = _written()
    if _is_behind(held, written):
        return dict(written.queries[-1])
    if written.run is not _run():
        written.queries.clear()
    return held


def change(**values: str | None) -> None:
    """Sets names of the query; None takes one out. The others stay."""
    now = words()
    wanted = {name: value for name, value in {**now, **values}.items() if value}
    if wanted == now:
        return
    written = _written()
    written.queries = [*(written.queries or [now]), wanted]
    written.page, written.run, written.at, written.shown = _page(), _run(), time.monotonic(), wanted
    st.query_params.from_dict(wanted)


def keep_address() -> None:
    """For the beginning of a page: a browser that has not got an address yet, since another rerun came between or a
    link from this page led to it, is told it once more."""
    written = _written()
    if _is_link():
        written.queries.clear()
    wanted = words()
    is_led_here = written.page == _page() and written.shown not in (None, wanted) and not _is_back_or_forward()
    if is_led_here:
        written.queries = [written.shown or {}, wanted]
    if is_led_here or wanted != _held():
        written.run, written.at = _run(), time.monotonic()
        st.query_params.from_dict(wanted)
    written.page, written.shown = _page(), wanted


def show_value(key: str, value: Any) -> None:
    """The state of a widget as the address has it. One that stands for it already is left alone: setting it would also
    set it in the browser, over what was chosen there since."""
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value


def run_query() -> RunQuery:
    return RunQuery.of_address(words())


def set_run_query(query: RunQuery) -> None:
    """What the page Runs shows; names that are no part of its query, such as the metrics compared, stay."""
    wanted = query.address()
    change(**{name: wanted.get(name) for name in RunQuery.NAMES})


def _held() -> Query:
    """What the browser sent, with what this run of the script has written since."""
    context = get_script_run_ctx()
    return dict(parse_qsl(context.query_string, keep_blank_values=True)) if context is not None else {}


def _is_link() -> bool:
    """Whether a link led here: what a person changes comes with the values of the page's widgets, a link with none."""
    context = get_script_run_ctx()
    return context is not None and not context.fragment_ids_this_run and not context.session_state.get_widget_states()


def _is_behind(held: Query, written: _Written) -> bool:
    if not written.queries or held == written.queries[-1] or held not in written.queries:
        return False
    return not _is_back_or_forward() and written.page == _page() and time.monotonic() - written.at < _LATE_S


def _is_back_or_forward() -> bool:
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def _written() -> _Written:
    """Of this session. Read as a whole, which gives way to nothing."""
    found = st.session_state.to_dict().get(_KEY)
    if isinstance(found, _Written):
        return found
    begun = _Written()
    st.session_state[_KEY] = begun
    return begun


def _page() -> str:
    context = get_script_run_ctx()
    return context.page_script_hash if context is not None else ""


def _run() -> object:
    """Another one with each run of the script."""
    context = get_script_run_ctx()
    return context.cursors if context is not None else None
