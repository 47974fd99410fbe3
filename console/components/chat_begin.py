"""Where a conversation begins: the run and which of its checkpoints; and the conversations that there were."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.once import say_once
from console.components.parts import attempted, empty_state, problem
from console.components.run_choice import run_choice
from console.components.text import age, literal
from console.services.conversations import Column, Conversation
from console.services.formats import count_text
from console.services.serving import MAX_COLUMNS, chosen_columns, columns_of
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job

_KINDS = ("rl", "sft", "preference")
_NONE = ("Nothing to ask yet", "A conversation is with the checkpoints of a run. Start one, or wait for it.")
_LISTED = 20


def begin_form() -> list[Column]:
    """The checkpoints that the address names, which may be changed; none where there is no run to ask."""
    run = run_choice("chat-run", kinds=_KINDS, forget=("steps",), none=_NONE)
    if run is None:
        return []
    known = columns_of(context.jobs(), run)
    if not known:
        empty_state("No checkpoint yet", "This run has written none that is whole, and began with no model's folder.")
        return []
    columns = _columns(run, known)
    st.text_input(
        "System prompt",
        key="chat-system",
        placeholder="none",
        help="Stands before the first question of the conversation; a chat template may add one of its own.",
    )
    return columns


def earlier() -> None:
    """One's own conversations, the newest first."""
    found = context.conversations().mine()
    if not found:
        return
    st.subheader("Your conversations")
    with st.container(border=True, gap="xsmall", key="chats"):
        for conversation in found[:_LISTED]:
            _line(conversation)
    if len(found) > _LISTED:
        st.caption(f"The newest {_LISTED} of {count_text(len(found))}.")


def _line(conversation: Conversation) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.page_link(
            "app_pages/playground.py", label=literal(conversation.title), query_params={"chat": conversation.id}
        )
        st.caption(literal(", ".join(column.label for column in conversation.columns)), width="content")
        age(datetime.fromtimestamp(conversation.created_at, UTC))
        st.button(
            "Throw away",
            key=f"forget-{conversation.id}",
            type="tertiary",
            on_click=_forget,
            args=(conversation,),
            help="For good. What was kept of it as samples or marks stays.",
        )


def _forget(conversation: Conversation) -> None:
    with attempted():
        context.answers().stop(conversation.id)
        context.conversations().remove(conversation)
        say_once("The conversation is gone.")


def _columns(run: Job, known: list[Column]) -> list[Column]:
    named = [step for step in words().get("steps", "").split(",") if step]
    try:
        columns = chosen_columns(context.jobs(), run, [int(step) for step in named])
    except (MmrlError, ValueError) as error:
        problem(str(error) if isinstance(error, MmrlError) else f"steps: numbers with commas between (got {named})")
        columns = []
    if not columns:
        columns = list({known[0].step: known[0], known[-1].step: known[-1]}.values())
    labels = {column.step: column for column in known}
    show_value("chat-steps", [column.step for column in columns])
    st.multiselect(
        "Checkpoints",
        list(labels),
        format_func=lambda step: "0, where the run began" if step == 0 else f"step {step}",
        key="chat-steps",
        max_selections=MAX_COLUMNS,
        on_change=changed("chat-steps", lambda new: change(steps=",".join(map(str, new)) or None)),
        help=f"Up to {MAX_COLUMNS}, asked the same question.",
    )
    return [labels[step] for step in st.session_state["chat-steps"]]
