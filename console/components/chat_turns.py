"""What was asked and answered, the checkpoints side by side; answers under way are read as they come."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.chat_keep import keep_buttons
from console.components.long_text import model_text, text_style
from console.components.parts import attempted, part
from console.components.text import literal, shown
from console.services.conversations import Conversation, Reply, Turn
from console.services.formats import count_text, end_text, number_text
from mmrl.data.images import ImageStore

_EVERY_S = 0.5
_MAX_SHOWN = 20_000
"""Characters of a text before all of it must be asked for."""


def transcript(conversation: Conversation, *, is_own: bool) -> None:
    """The last question is live while it is being answered.

    Each turn has a container, as a live part has: the answer that ended takes the place of the one that was written,
    and does not stand beside it until the whole page is drawn.
    """
    text_style()
    is_writing = context.answers().is_writing(conversation.id)
    finished = conversation.turns[:-1] if is_writing else conversation.turns
    for number in range(len(finished)):
        with st.container():
            _turn(conversation, number)
            if is_own:
                keep_buttons(conversation, number)
    if is_writing:
        _live(conversation.id)


def _live(conversation_id: str) -> None:
    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        with part("the answers"):
            answers = context.answers()
            if not answers.is_writing(conversation_id):
                st.rerun()
            now = answers.now(context.conversations().get(conversation_id))
            _turn(now, len(now.turns) - 1)
            st.button("Stop answering", key="stop-answers", on_click=_stop, args=(conversation_id,))

    look()


def _stop(conversation_id: str) -> None:
    with attempted():
        conversations = context.conversations()
        conversations.check_owner(conversations.get(conversation_id))
        context.answers().stop(conversation_id)


def _turn(conversation: Conversation, number: int) -> None:
    turn = conversation.turns[number]
    with st.container(key=f"turn-{number}", gap="small"):
        with st.container(border=True, key=f"question-{number}", gap="small"):
            st.caption(literal(f"Question {number + 1} · {_settings(turn)}"))
            _images(turn)
            model_text(turn.question, key=f"question-text-{number}", limit=_MAX_SHOWN)
        boxes = st.columns(len(conversation.columns))
        for place, (box, column, reply) in enumerate(zip(boxes, conversation.columns, turn.replies, strict=True)):
            with box, st.container(border=True, key=f"reply-{number}-{place}", gap="xsmall"):
                st.caption(literal(column.label))
                _reply(reply, key=f"reply-text-{number}-{place}")


def _images(turn: Turn) -> None:
    store = ImageStore()
    with st.container(horizontal=True, gap="small"):
        for number, image in enumerate(turn.images, start=1):
            path = store.path(image)
            size = f"{image.width} × {image.height} pixels"
            if path.is_file():
                st.image(str(path), alt=f"image {number}, {size}", width=min(280, max(96, image.width)))
            else:
                st.text(f"image {number} ({size}) is gone")


def _reply(reply: Reply, *, key: str) -> None:
    if reply.text and reply.state == "writing":
        st.text(shown(reply.text))
    elif reply.text:
        model_text(reply.text, key=key, limit=_MAX_SHOWN)
    elif reply.state in ("done", "stopped"):
        st.text("(empty)")
    elif reply.state == "writing":
        st.caption("waits for its first word …")
    if reply.error:
        st.text(f"Failed: {shown(reply.error)}")
    st.caption(literal(_figures(reply)))


def _figures(reply: Reply) -> str:
    told = [{"writing": "answering", "stopped": "stopped", "failed": "failed"}.get(reply.state, "")]
    if reply.state == "done":
        told = [end_text(reply.finish_reason or "ended")]
    told += [f"{count_text(reply.num_tokens)} tokens"] if reply.num_tokens is not None else []
    told += [f"{number_text(reply.seconds, 2)} s"] if reply.seconds is not None else []
    return " · ".join(filter(None, told))


def _settings(turn: Turn) -> str:
    sampling = turn.sampling
    drawn = f"seed {sampling.seed}" if sampling.seed is not None else "no seed"
    how = "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}"
    return f"{how}, at most {count_text(sampling.max_tokens)} tokens, {drawn}"
