"""How answers are sampled; it stays in the address."""

from __future__ import annotations

import math
from collections.abc import Callable

import streamlit as st

from console.components.address import change, show_value, words
from console.components.changes import changed
from console.services.conversations import MAX_TOKENS, Conversation, Sampling

_MAX_SEED = 2**53 - 1
"""The largest whole number that a browser knows exactly."""
_NAMES = ("temperature", "top_p", "max_tokens", "seed")


def sampling_settings(conversation: Conversation | None) -> Sampling:
    """From the address, else as the last question was asked."""
    base = conversation.turns[-1].sampling if conversation is not None and conversation.turns else Sampling()
    given = {name: _number(words().get(name), getattr(base, name)) for name in _NAMES}
    show_value("chat-temperature", min(2.0, max(0.0, float(given["temperature"] or 0.0))))
    show_value("chat-top_p", min(1.0, max(0.01, float(given["top_p"] or 1.0))))
    show_value("chat-max_tokens", min(MAX_TOKENS, max(1, int(given["max_tokens"] or 1))))
    seed = given["seed"]
    show_value("chat-seed", None if seed is None else min(_MAX_SEED, max(0, int(seed))))
    with st.container(horizontal=True, gap="small", key="chat-settings"):
        st.number_input(
            "Temperature",
            min_value=0.0,
            max_value=2.0,
            step=0.1,
            key="chat-temperature",
            width=140,
            help="0 always takes the most likely token; 1 samples as the model says.",
            on_change=_take("temperature"),
        )
        st.number_input(
            "top_p",
            min_value=0.01,
            max_value=1.0,
            step=0.05,
            key="chat-top_p",
            width=130,
            help="Only the most likely tokens that together have this probability; 1 takes all.",
            on_change=_take("top_p"),
        )
        st.number_input(
            "Max tokens",
            min_value=1,
            max_value=MAX_TOKENS,
            step=16,
            key="chat-max_tokens",
            width=140,
            help="The longest answer, in tokens.",
            on_change=_take("max_tokens"),
        )
        st.number_input(
            "Seed",
            min_value=0,
            max_value=_MAX_SEED,
            step=1,
            key="chat-seed",
            width=140,
            placeholder="none",
            help="The same question with the same seed gives the same answer, and the same draws to all checkpoints.",
            on_change=_take("seed"),
        )
    state = st.session_state
    return Sampling(state["chat-temperature"], state["chat-top_p"], state["chat-max_tokens"], state["chat-seed"])


def _take(name: str) -> Callable[[], None]:
    def take(value: float | None) -> None:
        change(**{name: "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)})

    return changed(f"chat-{name}", take)


def _number(text: str | None, other: float | None) -> float | None:
    """`other` where the address tells nothing, or what is no finite number."""
    if text is None or text == "none":
        return other if text is None else None
    try:
        number = float(text)
    except ValueError:
        return other
    return number if math.isfinite(number) else other
