"""Every reward, explained: what it pays, how, what can be set, and how a config names it."""

from __future__ import annotations

import re
from collections.abc import Callable

import streamlit as st

from console.components.reward_task import set_rewards
from console.components.text import literal
from console.services.reward_notes import FAMILIES, RewardNote, reward_notes
from mmrl.config.dump import value_text
from mmrl.rewards.catalogue import RewardField


def registry(name: str | None, *, choose: Callable[[str], None], to_try: Callable[[], None]) -> None:
    """choose: told the type that somebody picks. to_try: called to show the part Try."""
    notes = reward_notes()
    shown = notes[name] if name in notes else next(iter(notes.values()))
    left, right = st.columns([1, 3], gap="large")
    with left, st.container(key="reward-list", gap="small"):
        for family, title in FAMILIES.items():
            st.caption(title)
            with st.container(horizontal=True, gap="xsmall"):
                for note in notes.values():
                    if note.family == family:
                        st.button(
                            note.type,
                            key=f"reward-{note.type}",
                            type="primary" if note.type == shown.type else "secondary",
                            on_click=choose,
                            args=(note.type,),
                        )
    with right, st.container(key="reward-note"):
        _note(shown, to_try)


def _note(note: RewardNote, to_try: Callable[[], None]) -> None:
    st.subheader(note.type)
    st.markdown(note.pays)
    if note.formula:
        st.caption("How it is counted")
        st.markdown(note.formula)
    if note.reads:
        st.caption("Where it reads the answer")
        st.markdown(note.reads)
    st.caption("Example")
    st.code(f"reward:\n  - {note.example}", language=None)
    st.button(
        "Try it on rows of a data set",
        key="try-this",
        on_click=set_rewards,
        args=("try", f"- {note.example}\n", to_try),
    )
    st.caption("What can be set")
    st.table([_row(field) for field in note.fields], border="horizontal")
    if note.manual:
        with st.expander("From the manual", key="reward-manual"):
            st.markdown(re.sub(r"(?m)^```\w+", "```", note.manual))  # colours of syntax are too pale to read


def _row(field: RewardField) -> dict[str, str]:
    default = "must be set" if field.required else value_text(field.default)
    return {
        "Setting": f"`{field.name}`",
        "Default": literal(default),
        "Meaning": f"{literal(field.description)} *{literal(_type(field.type))}*",
    }


def _type(text: str) -> str:
    """`Literal['a', 'b']` as `one of a, b`."""
    return re.sub(r"Literal\[(.*?)\]", lambda found: f"one of {found[1]}".replace("'", ""), text)
