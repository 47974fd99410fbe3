"""The page Rewards: what there is and how it works, tried, on a past run's responses, and beside people's marks."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.long_text import text_style
from console.components.once import tell_once
from console.components.parts import part
from console.components.reward_own import own
from console.components.reward_people import people
from console.components.reward_registry import registry
from console.components.reward_rescore import rescore
from console.components.reward_try import try_out

VIEWS: Mapping[str, str] = {
    "all": "All rewards",
    "own": "Your functions",
    "try": "Try on rows",
    "rescore": "On a past run",
    "people": "Beside people",
}
_DEFAULT = "- {type: math}\n"


def page() -> None:
    st.title("Rewards")
    text_style()
    context.viewer()
    tell_once()
    view = _view()
    with part("this part"):
        if view == "own":
            own(to_try=_to_try)
        elif view == "try":
            try_out(_DEFAULT)
        elif view == "rescore":
            rescore()
        elif view == "people":
            people(_DEFAULT)
        else:
            registry(words().get("name"), choose=lambda name: change(name=name), to_try=_to_try)


def _view() -> str:
    asked = words().get("view", "all")
    show_value("rewards-view", asked if asked in VIEWS else "all")
    st.segmented_control(
        "Part",
        list(VIEWS),
        format_func=VIEWS.__getitem__,
        key="rewards-view",
        required=True,
        label_visibility="collapsed",
        on_change=changed("rewards-view", lambda new: change(view=new, row=None)),
    )
    return str(st.session_state["rewards-view"])


def _to_try() -> None:
    change(view="try", row=None)


page()
