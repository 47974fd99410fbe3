"""History, lineage, attempts, hardware and a first look at the samples of a run."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from console import context
from console.components.address import change, words
from console.components.parts import empty_state, part
from console.components.text import age, job_link, literal, state_badge
from console.services.event_words import EventLine
from console.services.formats import count_text, exact_text, number_text
from console.services.run_checkpoints import tag_of
from console.services.run_detail import NUM_EVENTS, Hardware, Lineage, hardware, history, lineage
from console.services.runs import state_word
from console.services.sample_glance import SampleRow, glance
from mmrl.jobs.records import Job

_MANY_EVENTS = 400
_COLOURS = {"good": "green", "warning": "orange", "bad": "red"}


def events(job: Job) -> None:
    with part("the history"):
        limit = _MANY_EVENTS if words().get("events") == "many" else NUM_EVENTS
        lines = history(context.jobs(), job, limit=limit)
        for line in lines:
            _event(line)
        if len(lines) == NUM_EVENTS:
            st.button("Earlier ones too", key="events-many", on_click=lambda: change(events="many"))
        elif len(lines) == _MANY_EVENTS:
            st.caption(f"The last {_MANY_EVENTS}. `mmrl job show JOB --json` has all.")


def _event(line: EventLine) -> None:
    with st.container(horizontal=True, vertical_alignment="top", gap="small"):
        with st.container(width=110):
            age(line.at)
        if line.tone in _COLOURS:
            st.badge(line.tone if line.tone != "bad" else "failure", color=_COLOURS[line.tone])  # type: ignore[arg-type]
        st.text(line.text)


def samples(job: Job) -> None:
    with part("the samples"):
        found = glance(context.jobs(), job)
        if not found.num_rows:
            empty_state(
                "No samples yet", "Prompts and responses are kept at the steps that `record` in the config names."
            )
            return
        told = ", ".join(f"{count_text(number)} of {split}" for split, number in sorted(found.num_rows.items()))
        st.caption(literal(f"Responses kept: {told}. The last ones of {found.split}, as the model wrote them:"))
        st.page_link("app_pages/responses.py", label="Read them all", query_params={"run": job.id})
        for number, row in enumerate(found.rows):
            _sample(row, number)


def _sample(row: SampleRow, number: int) -> None:
    with st.container(border=True, key=f"sample-{number}", gap="small"):
        reward = "no reward" if row.reward is None else f"reward {number_text(row.reward)}"
        images = f" · {row.num_images} image{'s' if row.num_images > 1 else ''}" if row.num_images else ""
        cut = " · cut at the limit" if row.finish_reason == "length" else ""
        st.caption(literal(f"step {row.step} · {reward} · {row.length} tokens{cut}{images}"))
        if row.response is None:
            st.text("Only the numbers of this response were kept.")
            return
        left, right = st.columns(2)
        with left, st.container(gap="xsmall"):
            st.caption("Prompt")
            st.text(row.prompt or "–")
            if row.answer is not None:
                st.caption("Reference answer")
                st.text(row.answer)
        with right, st.container(gap="xsmall"):
            st.caption("Response")
            st.text(row.response or "(empty)")


def family(job: Job) -> None:
    with part("the lineage"):
        found = lineage(context.jobs(), job)
        _relatives(found, job)
        st.subheader("What it was made of")
        rows = [
            ("code", job.code_version),
            ("config", job.config_sha256),
            *((f"data set {name}", version) for name, version in sorted(job.data_hashes.items())),
        ]
        if job.resume_checkpoint:
            rows.append(("began at", job.resume_checkpoint))
        if found.fork:
            rows.append(("fork of", f"{found.fork.get('run')} at step {found.fork.get('step')}"))
        rows.append(("run directory", job.run_dir))
        _pairs(rows, key="made-of", alt="Versions of code, config and data")


def _relatives(found: Lineage, job: Job) -> None:
    for title, help_text, jobs in (
        ("It came from", "The runs that it resumed, tried again or forked, the first one first.", found.ancestors),
        ("Made of it", "Runs that resumed it, tried it again or forked it.", found.children),
        ("Its checkpoints' uses", "Jobs that evaluate or export its checkpoints.", found.uses),
    ):
        if jobs:
            st.subheader(title, help=help_text)
            for each in jobs:
                _relative(each)
    if found.uses:
        st.page_link("app_pages/runs.py", label="All of them", query_params={"tag": tag_of(job)})
    if not (found.ancestors or found.children or found.uses):
        st.text("It came from no other run, and none was made of it yet.")


def _relative(job: Job) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        job_link(job)
        state_badge(state_word(job))
        steps = f"step {job.step}" + (f" of {job.total_steps}" if job.total_steps else "")
        st.caption(literal(f"{job.kind} · {job.short_id} · {steps}"), width="content")
        age(job.created_at)


def machine(job: Job) -> None:
    with part("the hardware"):
        found = hardware(context.jobs(), job)
        if not found.attempts:
            st.text(f"It has not started. It needs {job.cpus} CPU slots and {job.gpus} GPUs of pool {job.pool}.")
            return
        _worker(found, job)
        _attempts(found)
        if found.gpus:
            st.subheader("GPUs")
            _frame(
                [
                    (use.attempt, use.gpu_uuid, exact_text(use.acquired_at), exact_text(use.released_at))
                    for use in found.gpus
                ],
                ["attempt", "GPU", "from", "until"],
                key="gpus",
                alt="GPUs of each attempt",
            )


def _worker(found: Hardware, job: Job) -> None:
    worker = found.worker
    st.subheader("Worker")
    if worker is None:
        st.text("The worker that had it last is not known any more.")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.text(f"{worker.host}: {worker.cpus} CPU slots, {len(worker.gpus)} GPUs, pool {worker.pool}")
        alive = "heard of" if worker.is_alive else "not alive, last heard of"
        age(worker.heartbeat_at, before=alive)
    st.caption(literal(f"The run takes {job.cpus} CPU slots and {job.gpus} GPUs of it, started as {job.backend}."))


def _attempts(found: Hardware) -> None:
    st.subheader("Attempts", help="Each start of the run. A resumed one goes on from its last checkpoint.")
    rows = [
        (
            each.attempt,
            each.host or "–",
            "–" if each.first_step is None else str(each.first_step),
            exact_text(each.started_at),
            exact_text(each.ended_at),
            each.end_reason or "–",
            "–" if each.exit_code is None else str(each.exit_code),
        )
        for each in found.attempts
    ]
    names = ["attempt", "host", "from step", "started", "ended", "reason", "exit code"]
    _frame(rows, names, key="attempts", alt="Attempts of the run")


def _pairs(rows: Sequence[tuple[str, str]], *, key: str, alt: str) -> None:
    _frame(rows, ["what", "value"], key=key, alt=alt)


def _frame(rows: Sequence[Sequence[object]], names: Sequence[str], *, key: str, alt: str) -> None:
    """Text of data frames is shown as it stands."""
    frame = pd.DataFrame([[str(value) for value in row] for row in rows], columns=list(names))
    st.dataframe(frame, key=key, hide_index=True, alt=alt)
