"""The page Playground: checkpoints asked the same question, with images, side by side."""

from __future__ import annotations

from typing import Any

import streamlit as st

from console import context
from console.components.address import change, words
from console.components.chat_begin import begin_form, earlier
from console.components.chat_keep import kept_marks
from console.components.chat_servers import servers
from console.components.chat_settings import sampling_settings
from console.components.chat_turns import transcript
from console.components.export_button import export_button
from console.components.once import tell_once
from console.components.parts import attempted, part
from console.components.text import literal
from console.services.chat_export import export_of
from console.services.chat_images import MAX_IMAGE_MB, TYPES, store_images
from console.services.conversations import MAX_QUESTION, Column, Conversation, Sampling
from console.services.serving import endpoint_of
from mmrl.jobs.roles import is_allowed


def page() -> None:
    st.title("Playground")
    st.caption(
        "Ask checkpoints of a run the same question, with images, and read their answers side by side. A good exchange "
        "is kept as a row of a data set; which answer is better, as a mark."
    )
    tell_once()
    with part("the conversation"):
        if words().get("chat"):
            _go_on(words()["chat"])
        else:
            _begin()


def _begin() -> None:
    columns = begin_form()
    if columns:
        _ask(columns, None)
    earlier()


def _go_on(chat_id: str) -> None:
    conversations, answers = context.conversations(), context.answers()
    answers.settle(chat_id)
    conversation = conversations.get(chat_id)
    viewer = context.viewer()
    is_own = conversation.owner_id == viewer.id or viewer.role == "admin"
    _head(conversation)
    if conversation.system:
        st.caption(literal(f"System: {conversation.system}"))
    transcript(conversation, is_own=is_own)
    if is_own:
        _ask(list(conversation.columns), conversation)
    else:
        st.caption("Somebody else's conversation: read it, or begin one of your own.")


def _head(conversation: Conversation) -> None:
    steps = ",".join(str(column.step) for column in conversation.columns)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="chat-head"):
        st.page_link(
            "app_pages/playground.py",
            label="New conversation",
            query_params={"run": conversation.columns[0].run_id, "steps": steps},
        )
        export_button(export_of(conversation), key="chat-export")
        kept_marks(conversation)


def _ask(columns: list[Column], conversation: Conversation | None) -> None:
    """The servers, how they sample, and the question to all of them."""
    may = is_allowed(context.viewer(), "submit", settings=context.database().settings)
    found = servers(columns)
    sampling = sampling_settings(conversation)
    is_ready = all(server.state == "ready" for server in found)
    is_writing = conversation is not None and context.answers().is_writing(conversation.id)
    with st.container(key="ask"):  # in the page itself: pinned to its foot it would change how the page scrolls
        asked: Any = st.chat_input(
            _placeholder(len(columns), may=may, is_ready=is_ready, is_writing=is_writing),
            key="question",
            max_chars=MAX_QUESTION,
            accept_file="multiple",
            file_type=TYPES,
            max_upload_size=MAX_IMAGE_MB,
            disabled=not may or not is_ready or is_writing,
        )
    if asked:
        with attempted():
            jobs = context.jobs()
            endpoints = [endpoint_of(jobs.get(server.job.id)) if server.job else None for server in found]
            _send(columns, conversation, asked, sampling, endpoints)


def _send(
    columns: list[Column], conversation: Conversation | None, asked: Any, sampling: Sampling, endpoints: list[Any]
) -> None:
    conversations, settings = context.conversations(), context.database().settings
    images = store_images([(file.name, file) for file in asked.files], context.viewer(), settings)
    if conversation is None:
        conversation = conversations.begin(tuple(columns), system=st.session_state.get("chat-system") or "")
    now = conversations.ask(conversation.id, asked.text, images, sampling)
    context.answers().start(now, len(now.turns) - 1, endpoints)
    change(chat=now.id, run=None, steps=None)
    st.rerun()


def _placeholder(num: int, *, may: bool, is_ready: bool, is_writing: bool) -> str:
    if not may:
        return "Viewers read; members ask"
    if is_writing:
        return "Wait for the answers, or stop them"
    if not is_ready:
        return "Start the checkpoint first" if num == 1 else "Start the checkpoints first"
    return "Ask the checkpoint" if num == 1 else f"Ask all {num} checkpoints"


page()
