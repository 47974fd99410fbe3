"""Buttons that keep something of an exchange: as a row of a data set, or as a mark."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.once import say_once
from console.components.parts import attempted, problem
from console.components.text import literal
from console.services.conversations import Conversation
from console.services.formats import count_text
from console.services.keeping import check_comparable, keep_as_sample, keep_marks, mark, marks_of
from mmrl.errors import MmrlError
from mmrl.jobs.marks import Choice, Marks

_CHOICES: dict[Choice, str] = {
    "a": "first is better",
    "b": "second is better",
    "tie": "as good",
    "both_bad": "both bad",
}


def keep_buttons(conversation: Conversation, turn: int) -> None:
    """Below a question that was answered."""
    replies = conversation.turns[turn].replies
    answered = [place for place, reply in enumerate(replies) if reply.text]
    if not answered:
        return
    with st.container(horizontal=True, gap="small", key=f"keep-{turn}"):
        with st.popover("Keep as a sample", key=f"keep-sample-{turn}", type="tertiary"):
            _sample(conversation, turn, answered)
        if len(answered) > 1:
            with st.popover("Which is better?", key=f"keep-mark-{turn}", type="tertiary"):
                _mark(conversation, turn, answered)


def kept_marks(conversation: Conversation) -> None:
    """How many marks there are of it, and what can be made of them."""
    with attempted():
        known = marks_of(conversation, database=context.database(), user=context.viewer())
        num = len(known.marks) + known.num_hidden
        if not num:
            return
        with st.popover(f"{count_text(num)} marks" if num > 1 else "1 mark", key="chat-marks"):
            if known.note:
                st.caption(known.note)
            if known.marks:
                _dataset_of_marks(conversation)
            st.page_link(
                "app_pages/label.py",
                label="Label: others judge them blind, results, agreement",
                query_params={"from": "chat", "chat": conversation.id, "num": "all"},
            )


def _dataset_of_marks(conversation: Conversation) -> None:
    st.caption("Answers that most people prefer become rows, chosen and rejected, as preference training takes.")
    name = st.text_input("Data set", key="chat-marks-name", value="chat-marks")
    if st.button("Make the data set", key="chat-marks-make"):
        kept = keep_marks(conversation, name, database=context.database(), user=context.viewer())
        st.text(f"{kept.dataset}, version {kept.version}: {count_text(kept.num_rows)} rows")
        query = {"data": f"{kept.dataset}:{kept.version}"}
        st.page_link("app_pages/new_run.py", label="New run on them", query_params=query)


def _sample(conversation: Conversation, turn: int, answered: list[int]) -> None:
    labels = {place: conversation.columns[place].label for place in answered}
    column = answered[0]
    if len(answered) > 1:
        column = st.selectbox("As asked of", answered, format_func=labels.__getitem__, key=f"keep-column-{turn}")
    own = conversation.turns[turn].replies[column].text
    st.caption(
        "The question with all before it becomes a prompt; the answer is what a run is to learn, or is graded by."
    )
    answer = st.text_area("Answer", value=own, key=f"keep-answer-{turn}-{column}")
    name = st.text_input("Data set", value="chat-samples", key=f"keep-name-{turn}")
    if st.button("Keep it", key=f"keep-it-{turn}"):
        with attempted():
            database, user = context.database(), context.viewer()
            kept = keep_as_sample(conversation, turn, column, answer, name, database=database, user=user)
            told = (
                f"{kept.dataset} has {count_text(kept.num_rows)} rows now" if kept.is_new else "It is in there already"
            )
            st.text(told)
            st.page_link(
                "app_pages/dataset.py",
                label="See the rows",
                query_params={"name": kept.dataset, "version": kept.version},
            )


def _mark(conversation: Conversation, turn: int, answered: list[int]) -> None:
    labels = {place: conversation.columns[place].label for place in answered}
    first, second = answered[0], answered[1]
    if len(answered) > 2:
        first = st.selectbox("First", answered, format_func=labels.__getitem__, key=f"mark-first-{turn}")
        others = [place for place in answered if place != first]
        second = st.selectbox("Second", others, format_func=labels.__getitem__, key=f"mark-second-{turn}")
    try:
        check_comparable(conversation, turn, first, second)
    except MmrlError as error:
        problem(f"They cannot be judged: {error}.")
        return
    st.caption(literal(f"First: {labels[first]}. Second: {labels[second]}. The names are seen, so it is not blind."))
    reason = st.text_input("Why (if you like)", key=f"mark-reason-{turn}")
    for choice, label in _CHOICES.items():
        st.button(
            label,
            key=f"mark-{turn}-{choice}",
            width="stretch",
            on_click=_add_mark,
            args=(conversation, turn, first, second, choice, reason),
        )


def _add_mark(conversation: Conversation, turn: int, first: int, second: int, choice: Choice, reason: str) -> None:
    with attempted():
        marks = Marks(context.database(), context.viewer())
        mark(conversation, turn, first, second, choice, reason=reason.strip()[:500] or None, marks=marks)
        say_once("The mark is kept.")
