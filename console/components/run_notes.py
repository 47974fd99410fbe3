"""Tags and note of a run, to read and to change."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.text import literal
from console.services.run_actions import MAX_NOTE_LENGTH, MAX_TAGS, describe
from mmrl.errors import MmrlError
from mmrl.jobs.records import Job


def show_tags(job: Job) -> None:
    for tag in job.tags:
        st.page_link(
            "app_pages/runs.py", label=f"\\#{literal(tag)}", query_params={"tag": tag}, help="Runs with this tag"
        )


def edit_notes(job: Job, known_tags: tuple[str, ...]) -> None:
    """A popover with a form; what is typed is kept when it is saved."""
    with st.popover("Tags and note", key=f"notes-{job.id}"), st.form(f"notes-form-{job.id}", border=False):
        tags = st.multiselect(
            "Tags",
            sorted({*known_tags, *job.tags}),
            default=list(job.tags),
            accept_new_options=True,
            max_selections=MAX_TAGS,
            key=f"tags-{job.id}",
            placeholder="type a tag",
        )
        note = st.text_area("Note", value=job.note or "", max_chars=MAX_NOTE_LENGTH, key=f"note-{job.id}")
        if st.form_submit_button("Save", key=f"notes-save-{job.id}", type="primary"):
            try:
                describe(context.jobs(), job.id, tags=tags, note=note)
            except MmrlError as error:
                st.text(str(error))
            else:
                st.rerun()
