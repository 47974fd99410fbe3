"""The checkpoints of a conversation: what state the server of each is in, and how to start and stop it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from console import context
from console.components.parts import attempted, no_worker
from console.components.text import literal
from console.services import serving
from console.services.conversations import Column
from console.services.formats import duration_text
from console.services.serving import Server, server_of
from console.settings import load_settings
from mmrl.jobs.records import Job

_EVERY_S = 2.0
_COLOURS = {"ready": "green", "failed": "red", "none": "gray", "stopping": "orange"}
_WORDS = {"none": "not started"}


def servers(columns: Sequence[Column]) -> list[Server]:
    """Shows them, live; the page runs anew when one of them changes. Gives what they are now."""
    jobs = context.jobs()
    found = [server_of(jobs, column) for column in columns]
    seen = [server.state for server in found]

    @st.fragment(run_every=_EVERY_S)
    def look() -> None:
        with attempted():
            now = [server_of(context.jobs(), column) for column in columns]
            if [server.state for server in now] != seen:
                st.rerun()
            for place, (box, column, server) in enumerate(zip(st.columns(len(columns)), columns, now, strict=True)):
                with box, st.container(border=True, key=f"server-{place}", gap="xsmall"):
                    _card(place, column, server)
            if any(server.state == "waiting" for server in now) and not _has_worker():
                no_worker()

    look()
    if any(state in ("none", "failed") for state in seen) and len(columns) > 1:
        st.button("Start all", key="start-all", type="primary", on_click=_start_all, args=(tuple(columns),))
    return found


def _card(place: int, column: Column, server: Server) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.page_link("app_pages/run.py", label=literal(column.label), query_params={"id": column.run_id})
        st.badge(_WORDS.get(server.state, server.state), color=_COLOURS.get(server.state, "blue"))  # type: ignore[arg-type]
    if server.state in ("none", "failed"):
        _why(server)
        label = "Start again" if server.job is not None else "Start"
        st.button(f"{label}: {literal(column.label)}", key=f"start-{place}", on_click=_start_all, args=((column,),))
        return
    if server.state != "ready":
        st.caption(literal(f"{server.told[:1].upper()}{server.told[1:]}{_since(server.job)}"))
    if server.state != "stopping" and server.job is not None:
        st.button(
            f"Stop: {literal(column.label)}",
            key=f"stop-{place}",
            on_click=_stop,
            args=(server.job.id,),
            help="Ends the server and frees its slot; the conversation stays.",
        )


def _why(server: Server) -> None:
    if server.job is None:
        st.caption("Start it to ask: it takes a slot of a worker, and ends by itself when nobody asks.")
        return
    st.text(f"{server.told[:1].upper()}{server.told[1:]}"[-600:])
    st.page_link("app_pages/run.py", label="Its log", query_params={"id": server.job.id, "tab": "log"})


def _since(job: Job | None) -> str:
    if job is None or job.started_at is None:
        return ""
    from datetime import UTC, datetime

    return f" ({duration_text((datetime.now(UTC) - job.started_at).total_seconds())} so far)"


def _start_all(columns: tuple[Column, ...]) -> None:
    with attempted():
        jobs = context.jobs()
        host = load_settings().serve_host
        for column in columns:
            run = jobs.get(column.run_id)
            serving.start(jobs, column, host=host, gpus=run.gpus)


def _stop(job_id: str) -> None:
    with attempted():
        context.jobs().cancel(job_id)


def _has_worker() -> bool:
    return any(worker.is_alive for worker in context.fleet().workers())
