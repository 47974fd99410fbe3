"""The checkpoints of a run: the best, those kept for good, and what can be made of each."""

from __future__ import annotations

from functools import partial

import streamlit as st

from console import context
from console.components.address import show_value
from console.components.changes import changed
from console.components.parts import empty_state, part
from console.components.run_buttons import tell
from console.components.text import age, literal
from console.services import run_checkpoints
from console.services.formats import bytes_text, number_text
from console.services.run_actions import Done
from console.services.run_checkpoints import CheckpointLine, CheckpointTable, Use
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job

_MOST = 50
_HELP = {
    "evaluate": "Submits a job that answers the held-out prompts with it, graded as in the run.",
    "export": "Submits a job that makes a model folder of it, which from_pretrained and vLLM load.",
}


def checkpoints(job: Job, *, may_act: bool) -> None:
    with part("the checkpoints"):
        table = run_checkpoints.checkpoint_table(context.jobs(), job)
        if not table.lines:
            empty_state("No checkpoint yet", "Each whole one appears here as soon as it is written.")
            return
        if table.metric is not None:
            st.caption(literal(f"The best one is chosen by {table.metric}, as the config says (checkpoint.best)."))
        for line in table.lines[:_MOST]:
            _line(job, line, table, may_act=may_act)
        if len(table.lines) > _MOST:
            st.caption(f"The newest {_MOST} of {len(table.lines)}.")


def _line(job: Job, line: CheckpointLine, table: CheckpointTable, *, may_act: bool) -> None:
    step = line.row.step
    with st.container(border=True, key=f"checkpoint-{step}"):
        about, actions = st.columns([3, 4], vertical_alignment="center")
        with about, st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**Step {step}**", width="content")
            if line.is_best:
                st.badge("best", color="green", help=f"The best {literal(table.metric or '')} of those that are kept.")
            metric = "" if line.metric is None else f"{table.metric} {number_text(line.metric)} · "
            st.caption(literal(f"{metric}{bytes_text(line.row.num_bytes)}"), width="content")
            age(line.row.created_at)
            if not line.is_here:
                st.caption("its files are not on this machine", width="content")
        with actions, st.container(horizontal=True, vertical_alignment="center", gap="small"):
            _keep(job, line, may_act=may_act)
            for what in ("evaluate", "export"):
                _use(job, step, what)
            st.page_link(
                "app_pages/new_run.py",
                label="Fork",
                query_params={"checkpoint": f"{job.id}@{step}"},
                help="A new run that begins at this checkpoint, with settings to be changed.",
            )


def _keep(job: Job, line: CheckpointLine, *, may_act: bool) -> None:
    key = f"keep-{job.id}-{line.row.step}"
    show_value(key, line.is_kept)
    st.toggle(
        "Keep",
        key=key,
        disabled=not may_act or not line.is_here,
        help="Kept whatever the run's retention says.",
        on_change=changed(key, partial(_set_kept, job, line.row.step)),
    )


def _set_kept(job: Job, step: int, is_kept: bool) -> None:
    try:
        run_checkpoints.keep(context.jobs(), job, step, context.viewer(), is_kept=is_kept)
    except (MmrlError, OSError) as error:
        tell([Done(job, str(error), is_error=True)])


def _use(job: Job, step: int, what: Use) -> None:
    num_made = run_checkpoints.made_of(context.jobs(), job, step, what)
    st.button(
        what.capitalize() + (f" ({num_made})" if num_made else ""),
        key=f"{what}-{step}",
        help=_HELP[what] + (f" It was done {num_made} times." if num_made else ""),
        on_click=partial(_submit, job, step, what, num_made),
    )


def _submit(job: Job, step: int, what: Use, num_made: int) -> None:
    try:
        made = run_checkpoints.use(context.jobs(), job, step, what, num_made=num_made)
    except MmrlError as error:
        tell([Done(job, str(error), is_error=True)])
    else:
        tell([Done(job, f"{made.name} is submitted: {made.state}.", other=made)])
