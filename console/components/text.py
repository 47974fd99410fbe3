"""Text that came from outside, states, ages and links, shown the same way on every page."""

from __future__ import annotations

import html
import re
from datetime import datetime

import streamlit as st

from console.services.formats import age_text, exact_text
from mmrl.jobs.records import Job
from mmrl.runs.inert import inert

_MARKUP = re.compile(r"([!-/:-@\[-`{-~])")
_ADDRESS = re.compile(r"(@|https?:|www)(?=\S)", re.IGNORECASE)
_JOINER = "\u2060"
"""Unseen, and no line breaks there: what stands around it is no address to Markdown."""
_STATE_COLOURS = {
    "running": "blue",
    "starting": "blue",
    "stopping": "orange",
    "pausing": "orange",
    "paused": "orange",
    "lost": "orange",
    "succeeded": "green",
    "failed": "red",
}


def literal(text: object) -> str:
    """A text for labels, which Streamlit reads as Markdown: every mark of it escaped, no address a link, on one line.

    For whole texts `st.text` and `st.code` need no escaping.
    """
    return _MARKUP.sub(r"\\\1", _ADDRESS.sub(rf"\1{_JOINER}", " ".join(str(text).split())))


def shown(text: str, *, most: int = 20_000) -> str:
    """A text of a model or of data for `st.text`: its control characters as escapes, and not endless."""
    safe = inert(text)
    return safe if len(safe) <= most else f"{safe[:most]}… ({len(safe):,} characters)"


def state_badge(state: str) -> None:
    """state: of a job, or the word for what it is about to become."""
    st.badge(state, color=_STATE_COLOURS.get(state, "gray"))  # type: ignore[arg-type]


def age(time: datetime | None, *, now: datetime | None = None, before: str = "") -> None:
    """`before` and how long ago, small; the exact time is told on hovering. before: a word of the page's own."""
    shown = html.escape(f"{before} {age_text(time, now)}".strip())
    moment = "" if time is None else f' datetime="{time.isoformat()}" title="{exact_text(time)}"'
    st.caption(f"<time{moment}>{shown}</time>", unsafe_allow_html=True, width="content")


def job_link(job: Job, *, label: str | None = None) -> None:
    """The way to the run's page, under its name."""
    st.page_link("app_pages/run.py", label=literal(label or job.name), query_params={"id": job.id})
