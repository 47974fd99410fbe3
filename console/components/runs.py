"""Single runs as cards: those under way, those that wait, those that failed."""

from __future__ import annotations

from datetime import datetime

import streamlit as st

from console.components.spark import spark
from console.components.text import age, job_link, literal, state_badge
from console.services.formats import count_text, duration_text, number_text
from console.services.machines import Waiting
from console.services.overview import Headline, RunningRun
from mmrl.jobs.records import Job

_SHORT = 300


def running_run(run: RunningRun, *, now: datetime) -> None:
    """Name, state, how far and how long still, and the metric that tells most."""
    job = run.line.job
    with st.container(border=True, key=f"running_{job.id}"):
        about, curve = st.columns([7, 2], vertical_alignment="center")
        with about:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                job_link(job)
                state_badge(run.line.state)
                age(job.started_at or job.queued_at, now=now, before=f"{run.line.owner} ·")
            _progress(run)
        if run.headline is not None:
            with curve:
                _headline(run.headline, job)


def waiting_job(waiting: Waiting, *, now: datetime) -> None:
    with st.container(border=True, key=f"waiting_{waiting.job.id}", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            job_link(waiting.job)
            age(waiting.job.queued_at, now=now, before="queued")
        st.text(waiting.reason)


def waiting_row(waiting: Waiting, *, now: datetime) -> None:
    """The same in one line where the page is wide."""
    about, why = st.columns([2, 5], vertical_alignment="center")
    with about, st.container(horizontal=True, vertical_alignment="center", gap="small"):
        job_link(waiting.job)
        age(waiting.job.queued_at, now=now)
    why.text(waiting.reason)


def failure(job: Job, *, now: datetime) -> None:
    """The cause as the run told it, shortened; the run's own page has all of it."""
    with st.container(border=True, key=f"failed_{job.id}", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            job_link(job)
            age(job.finished_at, now=now)
        text = job.error_message or "It left no message; its log may say more."
        st.text(text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…")


def _progress(run: RunningRun) -> None:
    job, left = run.line.job, run.line.pace.left_s
    if not job.total_steps:
        st.caption("It has not begun its first step.")
        return
    rest = f" · {duration_text(left)} left" if left is not None else ""
    share = min(1.0, job.step / job.total_steps)
    st.progress(share, text=f"step {count_text(job.step)} of {count_text(job.total_steps)}{rest}")


def _headline(headline: Headline, job: Job) -> None:
    st.caption(f"{literal(headline.metric)} **{literal(number_text(headline.values[-1]))}**", text_alignment="right")
    spark(headline.values, name=headline.metric, key=f"spark_{job.id}")
