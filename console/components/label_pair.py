"""A prompt and two answers without a name, side by side."""

from __future__ import annotations

import streamlit as st

from mmrl.evaluation.records import Evaluation
from mmrl.runs.inert import inert
from mmrl.types import Sample

_MAX_SHOWN = 20_000


def pair_view(evaluation: Evaluation, prompt: Sample, left: str, right: str) -> None:
    """evaluation: one that was asked the prompt; its panel has the images."""
    about, *answers = st.columns([2, 3, 3], gap="medium")
    with about:
        for number, image in enumerate(prompt.images, start=1):
            path = evaluation.image(image.sha256)
            if path is None:
                st.text(f"image {number} is gone")
            else:
                st.image(str(path), alt=f"image {number} of the prompt", width="stretch")
        for message in prompt.messages:
            st.text(_shown(message.text) or f"({message.role}: no text)")
        if prompt.answer is not None:
            with st.popover("Reference answer", key="label-answer", type="tertiary"):
                st.text(_shown(prompt.answer))
    for side, column, text in zip(("Left", "Right"), answers, (left, right), strict=True):
        with column, st.container(border=True, key=f"label-answer-{side.lower()}"):
            st.caption(side)
            st.text(_shown(text) or "(empty)")


def _shown(text: str) -> str:
    safe = inert(text)
    return safe if len(safe) <= _MAX_SHOWN else f"{safe[:_MAX_SHOWN]}… ({len(safe):,} characters)"
